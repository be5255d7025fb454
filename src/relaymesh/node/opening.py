"""Opening a data directory: recovery, replay, and a core that is ready for commands."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import apsw

from relaymesh.errors import DirectoryError, JournalDamaged, StoreMisconfigured
from relaymesh.journal import FIRST_SEQUENCE, Disk, Frame, Mirror, Recovery, Writer, read_frames, recover
from relaymesh.journal.aside import Aside, read_aside
from relaymesh.journal.checkpoint import checkpoint_chunks, list_checkpoints, read_checkpoint
from relaymesh.journal.frame import BadFrame
from relaymesh.journal.layout import JOURNAL
from relaymesh.journal.payloads import read_payload
from relaymesh.kernel.gaps import apply_behind_gap, leave_out
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.records import Accepted, AnyRecord, Granted, Published, Returned
from relaymesh.kernel.snapshot import restore
from relaymesh.kernel.state import State
from relaymesh.node.mirroring import naming_the_way_out
from relaymesh.node.settings import MeshSettings
from relaymesh.store import Projection, SqliteStore, rebuild
from relaymesh.wire.named import named_by
from relaymesh.wire.old_forms import within_bounds
from relaymesh.wire.records import Skipped, Unreadable, share_names
from relaymesh.wire.snapshot import decode_piece

log = logging.getLogger("relaymesh.node")

STORE_FILE = "store.db"
PROJECTED_AT_ONCE = 20_000
DAMAGED = (apsw.CorruptError, apsw.NotADBError)


@dataclass(frozen=True, slots=True)
class Opened:
    """What recovery found."""

    state: State
    writer: Writer
    store: SqliteStore | None
    epoch: int
    segments: int
    """How many segments are in `journal/`; every start begins one."""
    replayed: int
    took_s: float
    disk: Disk
    """The directory, together with its mirror if it has one."""


def open_directory(
    disk: Disk,
    store_path: Path | None,
    settings: MeshSettings,
    mirror: Mirror | None = None,
    *,
    now_ns: int,
) -> Opened:
    """Lock the directory, restore the state, and catch the store up. Raises a `DirectoryError`.

    `now_ns` is the wall clock: the time that is written into the new segment.
    """
    try:
        return _open_directory(disk, store_path, settings, mirror, now_ns)
    except JournalDamaged as error:
        if mirror is None:
            raise
        raise naming_the_way_out(error, mirror) from error


def _open_directory(
    disk: Disk, store_path: Path | None, settings: MeshSettings, mirror: Mirror | None, now_ns: int
) -> Opened:
    began = time.perf_counter()
    recovery = recover(disk, settings.journal, mirror)
    store = writer = None
    try:
        if store_path is not None:
            store = _open_store(store_path, disk, settings.done_retention_days)
        with _without_gc():
            state, store = _bring_back(recovery, store)
        start = recovery.checkpoint.sequence if recovery.checkpoint else FIRST_SEQUENCE
        writer = recovery.open_writer(now_ns)
        if store_path is not None and (store is None or store.applied != state.sequence):
            if store is not None:
                log.warning(
                    "the store ends at %d, the journal at %d: it is rebuilt", store.applied, state.sequence
                )
                store.close()
            rebuild_store(disk, store_path)
            store = SqliteStore(
                store_path, history_days=settings.done_retention_days, get=partial(read_payload, disk)
            )
            if store.applied == 0:
                # The journal is empty: there was nothing to rebuild the store from.
                store.skip_to(FIRST_SEQUENCE)
        segments = len(disk.list(JOURNAL))
    except BaseException as error:
        recovery.close()
        if store is not None:
            store.close()
        if writer is not None:
            _give_free(writer)
        if isinstance(error, OSError | apsw.Error):
            raise DirectoryError(f"the data directory cannot be opened: {error}") from error
        raise
    return Opened(
        state,
        writer,
        store,
        recovery.epoch,
        segments,
        state.sequence - start,
        time.perf_counter() - began,
        recovery.disk,
    )


def _give_free(writer: Writer) -> None:
    """Release the directory if a start fails after recovery."""
    try:
        writer.close()
    except DirectoryError as error:
        log.warning("the journal was not closed cleanly: %s", error)


def _open_store(path: Path, disk: Disk, history_days: float) -> SqliteStore | None:
    """The store, or None when its file is damaged: it is then rebuilt from the journal."""
    try:
        return SqliteStore(path, history_days=history_days, get=partial(read_payload, disk))
    except DAMAGED as error:
        log.warning("%s is damaged and is rebuilt: %s", path, error)
    except StoreMisconfigured as error:
        if not isinstance(error.__cause__, DAMAGED):
            raise
        log.warning("%s is damaged and is rebuilt: %s", path, error.__cause__)
    return None


def _bring_back(recovery: Recovery, store: SqliteStore | None) -> tuple[State, SqliteStore | None]:
    """Load a checkpoint and replay. The store follows, unless it needs events from before the checkpoint."""
    aside = read_aside(recovery.disk)
    state = restore(map(decode_piece, recovery.chunks())) if recovery.checkpoint else first_state()
    if store is not None and store.applied == 0 and recovery.checkpoint is None:
        store.skip_to(FIRST_SEQUENCE)
    follows = store is not None and store.applied >= state.sequence
    state.admitted.stored_through = store.applied if store is not None else 0
    catching_up: list[Projection] = []
    events = 0
    collect_from = store.applied if follows and store is not None else NEVER
    for projection in replay(state, recovery.frames(), aside, collect_from):
        if follows and store is not None and projection.base >= store.applied:
            catching_up.append(projection)
            events += projection.record.count
            if events >= PROJECTED_AT_ONCE:
                store = _project(store, catching_up)
                catching_up, events = [], 0
    aside.check_end(state.sequence)
    state.admitted.stored_through = 0
    if store is not None and catching_up:
        store = _project(store, catching_up)
    return state, store


def _project(store: SqliteStore, batch: list[Projection]) -> SqliteStore | None:
    try:
        store.project(batch)
    except DAMAGED as error:
        log.warning("%s is damaged and is rebuilt: %s", store.path, error)
        store.close()
        return None
    return store


def first_state() -> State:
    """The state of an empty journal."""
    state = State()
    state.sequence = FIRST_SEQUENCE
    return state


@dataclass(frozen=True, slots=True)
class Replayed:
    """The state after a whole journal, for `relaymesh.kernel.looks`."""

    state: State


def newest_state(disk: Disk) -> State:
    """The newest readable checkpoint. A bad one is skipped and left in place."""
    for sequence in list_checkpoints(disk):
        try:
            checkpoint = read_checkpoint(disk, sequence)
            return restore(map(decode_piece, checkpoint_chunks(disk, checkpoint)))
        except (BadFrame, JournalDamaged):
            continue
    return first_state()


def replay(
    state: State, frames: Iterator[Frame], aside: Aside, collect_from: int = NEVER
) -> Iterator[Projection]:
    """Apply every record of the frames that is not set aside. Yields each with what applying it returned.

    `collect_from`: from this sequence on also with the tasks and steps that it changed.
    """
    gap = False
    board = state.board
    for frame in frames:
        if frame.first_sequence != state.sequence:
            raise JournalDamaged(
                f"{frame.segment} at offset {frame.offset} begins with sequence {frame.first_sequence}"
                f" where {state.sequence} is next"
            )
        for record in aside.records(frame):
            base = state.sequence
            if board.moved is None and base >= collect_from:
                board.collect()
            if isinstance(record, Skipped):
                state.skip(record.count)
                yield Projection(base, record)
                continue
            if isinstance(record, Unreadable):
                gap = True
                named = named_by(record)
                leave_out(state, record.count, named.opens, named.pattern)
                yield Projection(base, Skipped(record.operation, record.count))
                continue
            if isinstance(record, Accepted | Published):
                share_names(record.envelopes)
            elif isinstance(record, Granted | Returned):
                record = within_bounds(record)  # noqa: PLW2901 - the same record, as it is read today
            if gap:
                yield from _behind_gap(state, record)
                continue
            detail = state.apply(record)
            yield Projection(base, record, detail, *(board.take_rows() if board.moved else ()))
        if state.sequence != frame.next_sequence:
            raise JournalDamaged(
                f"{frame.segment} at offset {frame.offset} does not hold its {frame.events} events"
            )


def _behind_gap(state: State, record: AnyRecord) -> Iterator[Projection]:
    """The parts of a record that could be applied, and `Skipped` for the sequences in between."""
    at, end = state.sequence, state.sequence + record.count
    for base, part, detail in apply_behind_gap(state, record):
        if base > at:
            yield Projection(at, Skipped(0, base - at))
        yield Projection(base, part, detail, *state.board.take_rows())
        at = base + part.count
    if end > at:
        yield Projection(at, Skipped(0, end - at))


def rebuild_store(disk: Disk, store_path: Path) -> int:
    """Rebuild the store from every segment, including the archive. Returns the events projected.

    If retention has dropped the first segments, it starts from the oldest checkpoint: the tables then lack
    what was settled before that, and the tasks that ended.
    """
    aside = read_aside(disk)
    get = partial(read_payload, disk)
    frames = read_frames(disk)
    first = next(frames, None)
    if first is None or first.first_sequence == FIRST_SEQUENCE:
        every = chain(() if first is None else (first,), frames)
        return rebuild(store_path, replay(first_state(), every, aside, FIRST_SEQUENCE), get=get)
    checkpoints = list_checkpoints(disk)
    if not checkpoints:
        raise JournalDamaged(
            f"the journal begins at sequence {first.first_sequence} and there is no checkpoint to start from",
            hint="put the missing segments or a checkpoint back in place",
        )
    sequence = checkpoints[-1]
    state = restore(map(decode_piece, checkpoint_chunks(disk, read_checkpoint(disk, sequence))))
    state.board.collect(everything=True)
    return rebuild(store_path, replay(state, read_frames(disk, sequence), aside), get=get)


@contextmanager
def _without_gc() -> Iterator[None]:
    """Garbage collection off: a replay makes millions of objects and no cycles; the search takes a third of
    the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
