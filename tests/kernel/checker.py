"""What must be true of a live state at any time, counted again the slow way. Looking ends no parcel."""

from __future__ import annotations

from collections import Counter

from relaymesh.kernel.entry import Entry, Leases
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.lane import Lane, lane_order
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.parcel import Parcel
from relaymesh.kernel.pending import DELAYED, LEASED, READY
from relaymesh.kernel.records import Failure
from relaymesh.kernel.state import State


def check(state: State) -> None:
    leases: Leases = {}
    for mailbox in state.mailboxes.values():
        check_counts(mailbox)
        check_lanes(mailbox)
        check_ready(mailbox)
        for entry in mailbox.entries.values():
            assert (entry.state == LEASED) == (entry.lease is not None)
            if entry.lease is not None:
                part = mailbox.entries[entry.sequence]
                if isinstance(part, Parcel):
                    assert part.tokens[entry.sequence - part.first] == entry.lease.token
                    leases[entry.lease.token] = part
                else:
                    assert entry.lease.held
                    assert entry.lease.entry is entry
                    leases[entry.lease.token] = entry.lease
                assert entry.lease.grant.mailbox == mailbox.address
    assert state.leases == leases
    for grant in {id(lease.grant): lease.grant for lease in leases.values()}.values():
        assert grant.held == sum(lease.grant is grant for lease in leases.values())
    check_timers(state)
    check_charges(state)
    check_letters(state)
    assert state.wanted == {} or state.stopped


def check_counts(mailbox: Mailbox) -> None:
    entries = list(mailbox.entries.values())
    counters = mailbox.counters
    settled = counters.acked + counters.dropped + counters.dead
    assert counters.accepted == settled + len(entries), "accepted = acked + dropped + dead + pending"
    assert mailbox.bytes == sum(kept(entry.envelope, entry.failures) for entry in entries)
    assert mailbox.leased == sum(entry.state == LEASED for entry in entries)
    assert mailbox.delayed == sum(
        entry.state == DELAYED and entry.ready_at == entry.due_at for entry in entries
    )
    for priority in range(1, 6):
        assert mailbox.by_priority[priority] == sum(entry.priority == priority for entry in entries)
    assert [entry.sequence for entry in entries] == sorted(mailbox.entries)


def kept(envelope: Envelope, failures: list[Failure] | None) -> int:
    """Content and unknown fields of a message, and the failures kept with it."""
    texts = [text for each in failures or () for text in (each.code, each.reason, each.stack)]
    return (
        len(envelope.content)
        + len(envelope.extra or b"")
        + sum(len(text.encode()) for text in texts)
        + 128 * len(failures or ())
    )


def check_charges(state: State) -> None:
    """Everything that is kept is charged to somebody, once."""
    charged: Counter[str] = Counter()
    for mailbox in state.mailboxes.values():
        account = f"subscriptions of {mailbox.owner}" if mailbox.owner else ""
        charged[account or mailbox.address] += 4096
        for id in mailbox.expected:
            charged[mailbox.address] += 512 + 4 * len(id)
        for entry in mailbox.entries.values():
            notice = entry.envelope.type in ("ack", "nack")
            payer = account or (mailbox.address if notice else entry.envelope.sender)
            charged[payer] += 512 + kept(entry.envelope, entry.failures)
    for letter in state.letters:
        charged[letter.payer or letter.envelope.sender] += 512 + kept(letter.envelope, letter.failures)
    assert state.charges.all() == charged


def check_letters(state: State) -> None:
    """Dead letters are counted by mailbox; redriven ones are kept only while there is room for them."""
    for address in {letter.mailbox for letter in state.letters}:
        shelf = state.letters.of(address)
        for status, count, size in (
            ("pending", shelf.pending, shelf.pending_bytes),
            ("redriven", shelf.redriven, shelf.redriven_bytes),
        ):
            these = [letter for letter in shelf.letters.values() if letter.status == status]
            assert count == len(these)
            assert size == sum(kept(letter.envelope, letter.failures) for letter in these)


def check_lanes(mailbox: Mailbox) -> None:
    for key, lane in mailbox.lanes.items():
        assert lane.key == key
        assert not lane.idle, f"lane {key!r} is empty and was not forgotten"
        assert not lane.taken
        waiting = waiting_in(lane)
        assert all(entry.lane is lane and entry.state in (READY, DELAYED) for entry in waiting)
        assert waiting == sorted(waiting, key=lane_order)
        assert not lane.waiting or lane.waiting[0].queued
        assert [lease.entry.lane for lease in lane.out.values()] == [lane] * len(lane.out)
        assert lane.halted == sum(halted == key for halted in mailbox.halted.values())
        for priority in range(1, 6):
            assert lane._by_priority[priority] == sum(entry.priority == priority for entry in waiting)


def waiting_in(lane: Lane) -> list[Entry]:
    return [entry for entry in lane.waiting if entry.queued]


def check_ready(mailbox: Mailbox) -> None:
    """Everything that may go stands among the ready exactly once: nothing is forgotten, nothing doubled."""
    ready = mailbox.ready
    in_heaps = [item for heap in ready._heaps for item in heap]
    queued: list[int] = []
    for item in [item for queue in ready._queues for item in queue]:
        queued += item.sequences if isinstance(item, Parcel) else (item,)
    queued += [sequence for _, sequence, _, lane in in_heaps if lane is None]
    standing = [s for s in queued if (entry := mailbox.entries.look(s)) is not None and entry.queued]
    apart = [entry.sequence for answers in mailbox.expected.values() for entry in answers]
    free = [e.sequence for e in mailbox.entries.values() if e.state == READY and e.lane is None]
    assert sorted(standing) == sorted(set(free).difference(apart))
    placed = [lane for lane in mailbox.lanes.values() if lane.place is not None]
    for lane in mailbox.lanes.values():
        if lane.runnable:
            assert lane in placed, f"lane {lane.key!r} may go but nobody knows"
    lanes = [lane for _, _, _, lane in in_heaps]
    assert all(lane in lanes for lane in placed)
    assert ready._gone >= 0
    in_all = len(queued) + len([lane for lane in lanes if lane is not None])
    assert in_all - len(standing) - len(placed) == ready._gone, "what is stale is counted"


def check_timers(state: State) -> None:
    """What has a time to wait for is known to the structure that waits for it."""
    due = [
        entry
        for when, sequence, _, box in state.due._heap
        if (entry := box.entries.look(sequence)) is not None
        and entry.state == DELAYED
        and entry.ready_at == when
    ]
    delayed = [e for box in state.mailboxes.values() for e in box.entries.values() if e.state == DELAYED]
    assert set(map(id, due)) == set(map(id, delayed))
    assert len(state.due) - len(delayed) == state.due._gone
    timed = {
        (box, sequence)
        for bucket in state.expiry._buckets.values()
        for box, held in bucket.items()
        for sequence in held
    }
    for mailbox in state.mailboxes.values():
        for entry in mailbox.entries.values():
            if entry.expires_at and entry.state in (READY, DELAYED):
                assert (mailbox, entry.sequence) in timed, "nobody will notice that it expires"
    clock = [item[2] for item in state.lease_clock._heap]
    for lease in state.leases.values():
        assert lease.token in clock or lease.grant in clock, "nobody will notice that the lease ends"
