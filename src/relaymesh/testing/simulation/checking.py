"""The verdict at the end of a run: every checker, over history, journal, live state, replays and store."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.journal import read_frames as product_frames
from relaymesh.journal.aside import Aside
from relaymesh.journal.checkpoint import checkpoint_chunks, list_checkpoints, read_checkpoint
from relaymesh.journal.frame import BadFrame
from relaymesh.kernel.dedup import Seen
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.snapshot import restore
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks.task import Task
from relaymesh.node.opening import first_state, replay
from relaymesh.store import SqliteStore
from relaymesh.testing.simulation.checkers import (
    check_admission,
    check_deliveries,
    check_fate,
    check_purges,
    check_schedules,
    check_settles,
    check_shown,
    check_talk,
    check_task_tables,
    check_tasks,
)
from relaymesh.testing.simulation.entries import Entry
from relaymesh.testing.simulation.ledger import Ledger
from relaymesh.testing.simulation.reading import read_frames
from relaymesh.testing.simulation.task_ledger import KEY_MS
from relaymesh.testing.simulation.verdict import Violation
from relaymesh.testing.simulation.world import World
from relaymesh.wire.snapshot import decode_piece

HISTORY_MS = 7 * 86_400_000
"""So long a message that was settled is in the store."""


def check_everything(world: World) -> None:
    """The node is up, healed, drained and synced."""
    ledger = Ledger(world.plan)
    files = world.disk.files()
    for first_sequence, records in read_frames(files):
        ledger.read(first_sequence, records)
    state: State = world.core.kernel.state
    if ledger.sequence != state.sequence:
        raise Violation("journal_whole", f"it ends at {ledger.sequence}, the node is at {state.sequence}")
    history = world.history
    check_admission(history, ledger)
    check_deliveries(history, ledger)
    check_settles(history, ledger)
    check_fate(history, ledger)
    check_tasks(history, ledger, world.now())
    check_schedules(history, ledger)
    check_talk(history, ledger, _used(state))
    check_shown(history, ledger.tasks, has_store=world.node.store is not None)
    for purge in check_purges(history, ledger, files):
        world.counts["letter_aged"] += 1
        world.counts["letter_aged_under_step"] += purge.waited
    check_counters(state, ledger)
    check_replays(world, state)
    if world.node.store is not None:
        check_store(world.node.store, ledger, world.now())
        check_task_tables(world.node.store, ledger.tasks, world.now())


def _used(state: State) -> dict[str, tuple[int, int]]:
    """What the node counts as used by the tasks that it knows."""
    live = {task.id: (task.cost, task.tokens) for task in state.board.tasks.values()}
    over = {id: (each.task.cost_micros, each.task.tokens) for id, each in state.board.over.items()}
    return live | over


def check_counters(state: State, ledger: Ledger) -> None:
    """The node's own counts are those of the journal."""
    for address, box in ledger.boxes.items():
        counters = state.mailboxes[address].counters
        for name in (
            "accepted",
            "delivered",
            "acked",
            "retried",
            "deferred",
            "dropped",
            "dead",
            "expired",
            "redriven",
        ):
            if getattr(counters, name) != getattr(box, name):
                raise Violation(
                    "conservation",
                    f"{address} counts {getattr(counters, name)} {name}, the journal {getattr(box, name)}",
                )
        if list(state.mailboxes[address].entries) != list(box.unsettled):
            raise Violation("conservation", f"{address} does not hold what the journal says")


def check_replays(world: World, state: State) -> None:
    """Live state = the whole journal replayed = each checkpoint and what follows it replayed."""
    live = durable(state)
    replayed = first_state()
    for _ in replay(replayed, product_frames(world.disk), Aside()):
        pass
    _compare("the journal", live, durable(replayed))
    _compare_ids(state, replayed)
    _compare_keys(world, state, replayed)
    for sequence in list_checkpoints(world.disk):
        try:
            checkpoint = read_checkpoint(world.disk, sequence)
        except BadFrame:
            continue  # damaged on purpose, and not read since
        restored = restore(map(decode_piece, checkpoint_chunks(world.disk, checkpoint)))
        for _ in replay(restored, product_frames(world.disk, sequence), Aside()):
            pass
        _compare(f"the checkpoint at {sequence}", live, durable(restored))
        _compare_ids(state, restored)
        _compare_keys(world, state, restored)


def _compare(what: str, live: dict[str, Any], other: dict[str, Any]) -> None:
    for name, value in live.items():
        if other[name] != value:
            raise Violation("live_is_replayed", f"{name} is {value} live, and {other[name]} from {what}")


def _compare_ids(live: State, replayed: State) -> None:
    """A replay may remember more ids than the live state, and fewer only where it asks the store."""
    replayed_ids = {(target, id): found for target, id, found in replayed.admitted}
    for target, id, found in live.admitted:
        same = replayed_ids.get((target, id))
        if same is None and isinstance(found, Seen) and found.at <= replayed.admitted.horizon:
            continue
        if same is None or _sequence_of(same) != _sequence_of(found):
            raise Violation("live_is_replayed", f"{id} to {target} is known live, and not after a replay")
        if isinstance(found, Seen) and found != same:
            raise Violation("live_is_replayed", f"{id} to {target}: {found} live, {same} replayed")


def _compare_keys(world: World, live: State, replayed: State) -> None:
    """What one of them does not know of a key, the store does, or the key is older than 7 days."""
    known = {(space, key): held for space, key, held in live.board.keys.ended()}
    told = {(space, key): held for space, key, held in replayed.board.keys.ended()}
    store = world.node.store
    for name in known.keys() | told.keys():
        if known.get(name) == told.get(name):
            continue
        held = known.get(name) or told[name]
        found = None if store is None else store.find_key(*name, held.ended_at)
        stored = found is not None and found.through >= held.through
        if (name in known and name in told) or not (stored or held.ended_at + KEY_MS <= world.now()):
            raise Violation(
                "live_is_replayed", f"key {name[1]}: {known.get(name)} live, {told.get(name)} replayed"
            )


def _sequence_of(found: int | Seen) -> int:
    return found if isinstance(found, int) else found.sequence


def durable(state: State) -> dict[str, Any]:
    """Everything a replay must give back."""
    return {
        "sequence": state.sequence,
        "epoch": (state.epoch, state.partition, state.next_token),
        "unrouted": state.unrouted,
        "subscriptions": [(*each, state.subscriptions.suspended(each[0])) for each in state.subscriptions],
        "agents": dict(state.agents),
        "mailboxes": {address: _mailbox(box) for address, box in state.mailboxes.items()},
        "letters": [msgspec.to_builtins(letter) for letter in state.letters],
        "schedules": {(each.namespace, each.name): each for each in state.schedules},
        "tasks": {task.id: _task(task) for task in state.board.tasks.values()},
        "owed": state.board.owed.all(),
    }


def _task(task: Task) -> tuple[Any, ...]:
    counts = (task.open, task.out, task.dead, task.kept, sorted(task.ready), task.closing, task.hard)
    volatile = ("progress",)
    steps = [
        {name: getattr(step, name) for name in step.__struct_fields__ if name not in volatile}
        for step in task.steps
    ]
    spent = (task.cost, task.tokens, task.cost_max, task.tokens_max, bool(task.paused))
    mail = (task.owner, task.reply_to, task.notify)
    signals = None if task.signals is None else (task.signals.kept, list(task.signals.ids))
    groups = {parent: (each.first, each.shape.steps, each.input) for parent, each in task.groups.items()}
    undoing = (task.undos, task.orders, sorted(task.waiting))
    return (task.plan, task.input, task.at, counts, steps, spent, mail, signals, groups, undoing)


def _mailbox(box: Mailbox) -> tuple[Any, ...]:
    return (
        box.settings,
        (box.owner, box.owner_budget),
        msgspec.to_builtins(box.counters),
        dict(box.halted),
        box.bytes,
        list(box.by_priority),
        [(entry.sequence, entry.attempts) for entry in box.entries.values()],
    )


def _stored_attempts(entry: Entry) -> int:
    """The store counts an ack as an attempt also when the message was not handed out."""
    return entry.ended + entry.unseen


def _may_be_gone(entry: Entry, now: int) -> bool:
    return entry.state != "dead" and entry.left_at + HISTORY_MS <= now


def check_store(store: SqliteStore, ledger: Ledger, now: int) -> None:
    """The tables, caught up, say what the journal says. Messages that were settled 7 days ago may be gone."""
    reader = store._reader
    if store.applied != ledger.sequence:
        raise Violation(
            "store_is_state", f"the store ends at {store.applied}, the journal at {ledger.sequence}"
        )
    rows = {
        (mailbox, sequence): (state, attempts, redrives, id)
        for mailbox, sequence, state, attempts, redrives, id in reader.execute(
            "SELECT mailbox, sequence, state, attempts, redrive_count, msg_id FROM messages"
        )
    }
    told = {
        name: (entry.state, _stored_attempts(entry), entry.redrives, entry.id)
        for name, entry in ledger.entries.items()
    }
    for name in sorted(rows.keys() | told.keys()):
        if name not in rows and _may_be_gone(ledger.entries[name], now):
            continue
        if rows.get(name) != told.get(name):
            raise Violation(
                "store_is_state", f"{name}: {rows.get(name)} in the store, {told.get(name)} in truth"
            )
    letters = set(reader.execute("SELECT mailbox, dead_sequence, message_id, reason FROM dead_letter_queue"))
    expected = {(box, dead, entry.id, entry.reason) for (box, dead), entry in ledger.letters.items()}
    if letters != expected:
        raise Violation("store_is_state", f"dead letters differ: {sorted(letters ^ expected)}")
