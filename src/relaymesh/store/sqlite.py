"""The SQLite store: one connection writes projections, others read."""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from relaymesh.errors import StoreMisconfigured
from relaymesh.kernel.dedup import WINDOW_MS, Seen
from relaymesh.kernel.payload import REFERENCE_MARK, references_in
from relaymesh.kernel.tasks.keys import KEY_MS, KeyHeld
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.views import StepView, TaskView
from relaymesh.store.aging import Cut, PurgedPart, purge_part
from relaymesh.store.changes import Changes, LetterSettled, series
from relaymesh.store.connect import connect_reader, connect_writer
from relaymesh.store.key_filter import KeyFilter
from relaymesh.store.projection import Projection, State
from relaymesh.store.queries import QUERIES, ManyRows
from relaymesh.store.schema import migrate
from relaymesh.store.series import SeriesRows
from relaymesh.store.tasks import TaskPage
from relaymesh.store.views import LetterRow, MessageRow, Views
from relaymesh.wire.payload import Get, no_payloads

HISTORY_DAYS = 7
DAY_MS = 86_400_000
REBUILD_EVENTS = 20_000

FILTERED_KEYS_MAX = 100_000
"""Keys that are read at the start, in about a tenth of a second. With more of them every key is looked up."""

SERIES_MIN = 16
"""A series of at least so many messages settled alike is one statement of its own; shorter ones share."""

_DIRECT = ManyRows("insert_direct", 14)
_SERIES = ManyRows("insert_series", SeriesRows.width)
_ROUTED = ManyRows("insert_routed", 14)
_REDRIVEN = ManyRows("insert_redriven", 14)
_ADMITTED_BY_TOPIC = ManyRows("insert_admitted_by_topic", 9)
_FILES = ManyRows("note_files", 3)
_SETTLE = ManyRows("settle_rows", 5)
_TOUCH = ManyRows("touch_rows", 8)
_LETTERS = ManyRows("insert_letters", 19)
_TASKS = ManyRows("write_tasks", 24)
_STEPS = ManyRows("write_steps", 21)
_KEYS = ManyRows("write_keys", 6)


class Purged(NamedTuple):
    """What one call of `purge` removed, and whether it stopped at its limit."""

    admissions: int = 0
    messages: int = 0
    tasks: int = 0
    steps: int = 0
    idempotency: int = 0
    more: bool = False


class SqliteStore:
    """Projections of one journal in one SQLite file.

    `project` and `purge` belong to one thread at a time; everything else may be called from any.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: str = "NORMAL",
        history_days: float = HISTORY_DAYS,
        journal: str | None = None,
        get: Get = no_payloads,
    ) -> None:
        """Open or create the file.

        `synchronous`: NORMAL syncs when the WAL is copied into the database. Power loss may take the
        last transactions, whole; the journal gives them back. FULL syncs at each transaction.
        `history_days`: how long settled messages stay to be looked up. A day more costs a day's
        messages at about 300 bytes each.
        `journal`: the identity of the journal, remembered at first and compared ever after.
        `get`: reads payload files.
        """
        self.path = Path(path)
        self._get = get
        self.history_ms = int(history_days * DAY_MS)
        """How long settled messages stay to be looked up. May be changed."""
        self.keys_ms = KEY_MS
        """How long the keys of tasks that ended are known. May be changed."""
        self._writer = connect_writer(self.path, synchronous)
        try:
            migrate(self._writer, str(self.path))
            self._check_journal(journal)
            self._applied: int = self._writer.execute(QUERIES["applied"]).get
            self._reader = connect_reader(self.path)
            self._reader_lock = threading.Lock()
            self._keys = self._known_keys()
            self._views = Views(self.path)
        except BaseException:
            self._writer.close()
            raise

    def _check_journal(self, journal: str | None) -> None:
        known = self._writer.execute(QUERIES["journal"]).get
        if journal is None or known == journal:
            return
        if known is not None:
            raise StoreMisconfigured(
                f"{self.path} is a projection of journal {known}, not of {journal}",
                hint="put the right file in place, or run relaymesh store rebuild",
            )
        self._writer.execute(QUERIES["set_journal"], (journal,))

    def _known_keys(self) -> KeyFilter | None:
        """Filled with the keys in the store; None: they are too many."""
        found = list(self._writer.execute(QUERIES["keys"], (FILTERED_KEYS_MAX + 1,)))
        if len(found) > FILTERED_KEYS_MAX:
            return None
        keys = KeyFilter()
        keys.add(found)
        return keys

    # -- writing

    @property
    def applied(self) -> int:
        """The next sequence to project: everything before it is in the tables, committed."""
        return self._applied

    def project(self, batch: Sequence[Projection]) -> None:
        """Write a contiguous batch in one transaction, all or nothing.

        Records that were projected before are skipped. A gap is refused: the tables would be wrong
        without saying so.
        """
        fresh, applied = self._fresh(batch)
        if not fresh:
            return
        changes = Changes()
        changes.add(fresh)
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            self._write(changes)
            self._writer.execute(QUERIES["set_applied"], (applied,))
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        self._applied = applied

    def skip_to(self, sequence: int) -> None:
        """Go on from a later sequence because the journal before it is no longer kept."""
        if sequence > self._applied:
            self._writer.execute(QUERIES["set_applied"], (sequence,))
            self._applied = sequence

    def _fresh(self, batch: Sequence[Projection]) -> tuple[Sequence[Projection], int]:
        applied = self._applied
        first = 0
        for projection in batch:
            end = projection.base + projection.record.count
            if end <= self._applied and projection.base < self._applied:
                first += 1
                continue
            if projection.base != applied:
                raise StoreMisconfigured(
                    f"{self.path} stands at sequence {applied}, but was given {projection.base} next",
                    hint="run relaymesh store rebuild",
                )
            applied = end
        return (batch[first:] if first else batch), applied

    def _write(self, changes: Changes) -> None:
        # New messages first: they take their own settles out, and what is left settles older rows.
        direct, in_series = changes.direct_rows()
        routed, admitted = changes.routed_rows()
        redriven = changes.redriven_rows()
        writer = self._writer
        if in_series.rows:
            _SERIES.run(writer, in_series.rows, in_series.blobs)
        _DIRECT.run(writer, direct)
        _ROUTED.run(writer, routed)
        _REDRIVEN.run(writer, redriven)
        _FILES.run(writer, changes.files)
        if changes.accepted is not None:
            first, last = changes.accepted
            writer.execute(QUERIES["insert_admitted"], (first,))
            writer.execute(QUERIES["mark_boundary"], (last,))
        if admitted:
            _ADMITTED_BY_TOPIC.run(writer, admitted)
            writer.execute(QUERIES["mark_boundary"], (admitted[-_ADMITTED_BY_TOPIC.width],))
        self._settle(changes)
        _TOUCH.run(writer, changes.touched_rows())
        _LETTERS.run(writer, changes.letter_rows())
        for mailbox, settled in changes.letters_settled.items():
            for how, dead_sequences in series(settled).items():
                self._settle_letters(mailbox, how, dead_sequences)
        if changes.tasks:
            _TASKS.run(writer, changes.tasks.task_rows())
            _STEPS.run(writer, changes.tasks.step_rows())
            keys = changes.tasks.key_rows(self._get)
            _KEYS.run(writer, keys)
            if self._keys is not None:  # before `applied` says that the store has them
                width = _KEYS.width
                self._keys.add(zip(keys[1::width], keys[::width], strict=True))  # type: ignore[arg-type]

    def _settle(self, changes: Changes) -> None:
        few: list[object] = []
        for mailbox, settled in changes.settled.items():
            for how, sequences in series(settled).items():
                if len(sequences) >= SERIES_MIN:
                    self._writer.execute(QUERIES["settle_run"], (*how, mailbox, _carray(sequences)))
                    continue
                for sequence in sequences:
                    few += (sequence, mailbox, *how)
        _SETTLE.run(self._writer, few)

    def _settle_letters(self, mailbox: str, how: LetterSettled, dead_sequences: list[int]) -> None:
        settled = (how.state, how.at, mailbox, _carray(dead_sequences))
        self._writer.execute(QUERIES["settle_letters"], settled)
        name = "delete_letters" if how.gone else "mark_letters_redriven"
        self._writer.execute(QUERIES[name], (mailbox, _carray(dead_sequences)))

    def purge(self, now_ms: int, limit: int | None = None) -> Purged:
        """Remove settled messages past history, admitted ids past both history and dedup window, and ended
        tasks past both history and the time of their key, with steps and keys. What is live stays.

        Ids stay as long as history because they are also how a message is found by id; `lookup`
        looks at the window alone. `limit` bounds the rows removed from each table in this call, so
        that projecting need not wait for a long purge: call again while `more`.
        """
        most = -1 if limit is None else limit
        history_end = now_ms - self.history_ms
        ids_end = now_ms - max(self.history_ms, WINDOW_MS)
        keys_end = now_ms - max(self.history_ms, self.keys_ms)
        with self._writer:
            swept = self._writer.execute(QUERIES["sweep"], (self._boundary(history_end),)).get
            messages = self._delete("purge_messages", (swept, history_end, most))
            ids = self._delete("purge_admissions", (self._boundary(ids_end), most))
            steps = self._delete("purge_steps", (keys_end, most))
            tasks = self._delete("purge_tasks", (keys_end, most))
            keys = self._delete("purge_keys", (keys_end, most))
        removed = (ids, messages, tasks, steps, keys)
        return Purged(*removed, limit is not None and limit in removed)

    def purge_part(self, cut: Cut, after: int) -> PurgedPart:
        """Remove what a person asked to remove, in the next window of the tables; see `store/aging.py`."""
        return purge_part(self._writer, cut, after)

    def _boundary(self, end_ms: int) -> int:
        found = self._writer.execute(QUERIES["boundary_before"], (end_ms,)).get
        return -1 if found is None else found

    def _delete(self, name: str, bindings: tuple[int, ...]) -> int:
        self._writer.execute(QUERIES[name], bindings)
        return self._writer.changes()

    # -- reading

    def lookup(self, keys: Iterable[tuple[str, str]], now_ms: int) -> dict[tuple[str, str], Seen]:
        """What is known of ids (target, id) that were admitted within the dedup window."""
        by_target: dict[str, list[str]] = {}
        for target, id in keys:
            by_target.setdefault(target, []).append(id)
        found: dict[tuple[str, str], Seen] = {}
        with self._reader_lock:
            for target, ids in by_target.items():
                bindings = (target, apsw.carray(tuple(ids)), now_ms - WINDOW_MS)
                for id, *seen in self._reader.execute(QUERIES["lookup"], bindings):
                    found[target, id] = Seen(*seen)
        return found

    def find_key(self, namespace: str, key: str, now_ms: int) -> KeyHeld | None:
        """What a key of a task led to, if the task ended within `keys_ms`. The kernel knows live ones."""
        if self._keys is not None and not self._keys.may_have(namespace, key):
            return None
        with self._reader_lock:
            bindings = (namespace, key, now_ms - self.keys_ms)
            row = next(self._reader.execute(QUERIES["key"], bindings), None)
        return None if row is None else KeyHeld(*row)

    def payloads(self) -> set[str]:
        """The SHA-256 of each payload file that holds a part of a result of a task."""
        with self._reader_lock:
            rows = list(self._reader.execute(QUERIES["results_in_files"], (REFERENCE_MARK,)))
        return {reference.sha256 for (result,) in rows for reference in references_in(result)}

    def messages(
        self, *, state: State | None = None, mailbox: str | None = None, limit: int = 100
    ) -> list[MessageRow]:
        """Pending ones in the order of priority and age; others, and all states together, newest first."""
        return self._views.messages(state=state, mailbox=mailbox, limit=limit)

    def message(self, msg_id: str) -> list[MessageRow]:
        """Every entry with this id: one for each mailbox, and one for each redrive."""
        return self._views.message(msg_id)

    def counts(self, mailbox: str | None = None) -> dict[State, int]:
        """How many messages in each state; states without any are left out. Reads every row."""
        return self._views.counts(mailbox)

    def dead_letters(
        self, *, mailbox: str | None = None, status: str | None = "pending", limit: int = 100
    ) -> list[LetterRow]:
        """Dead letters, newest first; `status=None` for all that are kept."""
        return self._views.dead_letters(mailbox=mailbox, status=status, limit=limit)

    def task(self, task_id: str) -> TaskView | None:
        """A task, live or ended, as far as the store has got."""
        return self._views.task(task_id)

    def steps(self, task_id: str) -> list[StepView]:
        """The steps of a task, in their order."""
        return self._views.steps(task_id)

    def tasks(
        self,
        *,
        namespace: str | None = None,
        status: Status | None = None,
        workflow: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> TaskPage:
        """Tasks, the newest first. `before`: the `next` of the page before."""
        return self._views.tasks(
            namespace=namespace, status=status, workflow=workflow, limit=limit, before=before
        )

    def close(self) -> None:
        """Copy the WAL into the database and close. What was projected is there at the next open."""
        self._views.close()
        with self._reader_lock:
            self._reader.close()
        self._writer.pragma("wal_checkpoint", "TRUNCATE")
        self._writer.close()


def rebuild(path: str | os.PathLike[str], projections: Iterable[Projection], **options: Any) -> int:
    """Make the store anew from the journal, beside the old one, and put it in its place when done.

    No process may have the old file open. Returns the next sequence to project. A crash leaves the old
    store, the new one, or none, which is an empty one: each is a prefix of the journal.
    """
    final = Path(path)
    fresh = final.with_name(final.name + ".rebuild")
    _remove(fresh)
    applied = _build(fresh, projections, options)
    # The old WAL must not meet the new file. The database goes first: a WAL without one is ignored.
    _remove(final)
    fresh.rename(final)
    _sync_directory(final.parent)
    return applied


def _build(path: Path, projections: Iterable[Projection], options: dict[str, Any]) -> int:
    store = SqliteStore(path, **options)
    try:
        for batch in _batches(projections):
            if store.applied == 0:
                store.skip_to(batch[0].base)  # where the journal that is still kept begins
            store.project(batch)
    except BaseException:
        store.close()
        _remove(path)
        raise
    store.close()
    return store.applied


def _batches(projections: Iterable[Projection]) -> Iterator[list[Projection]]:
    batch: list[Projection] = []
    events = 0
    for projection in projections:
        batch.append(projection)
        events += projection.record.count
        if events >= REBUILD_EVENTS:
            yield batch
            batch, events = [], 0
    if batch:
        yield batch


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _carray(numbers: list[int]) -> apsw.CArrayBinding:
    return apsw.carray(array("q", numbers))
