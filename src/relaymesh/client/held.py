"""The deliveries a client holds, as the objects the SDK works with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relaymesh.kernel.entry import Entry, Grant, Lease
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.lane import Lane
from relaymesh.kernel.pending import LEASED

NO_LANE = -1


class HeldLeases:
    """Every lease that came and was neither settled nor seen to run out.

    Entries and leases point at each other and are left out of garbage collection: whoever takes one out
    of here cuts the link, which also says that it is no longer there to be worked on.
    """

    def __init__(self, holder: str) -> None:
        self._holder = holder
        self._leases: dict[int, Lease] = {}

    @property
    def tokens(self) -> list[int]:
        return list(self._leases)

    def get(self, token: int) -> Lease | None:
        return self._leases.get(token)

    def arrived(
        self,
        mailbox: str,
        tokens: Sequence[int],
        sequences: Sequence[int],
        attempts: Sequence[int],
        deadlines: Sequence[int],
        envelopes: Sequence[Envelope],
        lanes: Sequence[int] | None = None,
        *,
        settled: bool = False,
        topics: Sequence[str | None] | None = None,
    ) -> list[Lease]:
        """Deliveries of one mailbox, as leases. A single topic is that of all."""
        grant = Grant(mailbox, self._holder, deadlines[0] if deadlines else 0, 0, True, settled=settled)
        held = self._leases
        leases: list[Lease] = []
        for token, sequence, attempt, deadline, envelope in zip(
            tokens, sequences, attempts, deadlines, envelopes, strict=True
        ):
            entry = Entry(envelope, sequence, 0, 0, 0, 0, envelope.priority, LEASED, attempt)
            lease = Lease(token, entry, envelope, attempt, deadline, grant, sequence)
            if not settled:
                entry.lease = lease
                held[token] = lease
            leases.append(lease)
        if lanes is not None:
            _join_lanes(leases, lanes)
        if topics:
            every = topics if len(topics) == len(leases) else [topics[0]] * len(leases)
            for lease, topic in zip(leases, every, strict=True):
                lease.entry.topic = topic
        return leases

    def drop(self, tokens: Iterable[int]) -> None:
        """They are settled, or lost, or were given back."""
        for token in tokens:
            lease = self._leases.pop(token, None)
            if lease is not None:
                lease.entry.lease = None
                lane = lease.entry.lane
                if lane is not None:
                    lane.run.pop(token, None)

    def returned(self, token: int) -> None:
        """It failed and goes back to its lane: so do those that were to come after it."""
        lease = self._leases.get(token)
        lane = None if lease is None else lease.entry.lane
        later: list[int] = []
        if lane is not None:
            run = list(lane.run)
            later = run[run.index(token) :] if token in lane.run else []
        self.drop([token, *later])

    def drop_expired(self, before: int) -> None:
        """Leases that ended before this time: their holder forgot them."""
        self.drop([token for token, lease in self._leases.items() if lease.deadline < before])

    def deadlines(self, extends: Sequence[tuple[int, int]]) -> list[int]:
        """When the leases to be extended end as far as is known, to be given to `extended`."""
        return [0 if (lease := self._leases.get(token)) is None else lease.deadline for token, _ in extends]

    def extended(
        self, extends: Sequence[tuple[int, int]], before: Sequence[int], deadlines: Sequence[int | None]
    ) -> None:
        """What the node answered to extensions: deadlines, or None for leases that are lost.

        Of two answers that may have overtaken each other the later deadline holds.
        """
        for (token, _), known, deadline in zip(extends, before, deadlines, strict=True):
            lease = self._leases.get(token)
            if deadline is None:
                self.drop([token])
            elif lease is not None:
                lease.deadline = deadline if lease.deadline == known else max(lease.deadline, deadline)

    def clear(self) -> None:
        self.drop(self.tokens)


def _join_lanes(leases: list[Lease], lanes: Sequence[int]) -> None:
    made: dict[int, Lane] = {}
    for lease, number in zip(leases, lanes, strict=True):
        if number != NO_LANE:
            lane = made.get(number)
            if lane is None:
                lane = made[number] = Lane(str(number))
            lease.entry.lane = lane
            if lease.held:
                lane.run[lease.token] = lease
