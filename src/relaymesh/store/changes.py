"""What a batch of records changes, worked out in memory so that each row is written once.

Most messages are accepted and settled within one batch: such a message becomes one insert in its
final state. To that end settles are collected first (`settled`), and building the rows of a newly
accepted message takes its settle out; what remains settles rows written by earlier batches.

Three things are kept apart because they never disagree: `settled` gives a row its final state,
`touched` changes its due time, priority and attempts, and `letters` are the dead letters. Touches
are written last, so the attempts that a dead letter states are the ones that stay.

Not projected: `Granted` (leases live in the kernel; an attempt is counted when it ends), `Completed`
(the ack it leads to is projected), and what only the kernel needs to know of mailboxes,
subscriptions, agents and epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import msgspec

from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.dedup import content_digest, topic_target
from relaymesh.kernel.envelope import IN_FILE, Envelope
from relaymesh.kernel.payload import the_reference
from relaymesh.kernel.records import (
    BURNING,
    Accepted,
    Acked,
    DeadLettered,
    DeadLettersPurged,
    DelayedForced,
    Dropped,
    Failure,
    Published,
    Redriven,
    Reprioritised,
    Returned,
    with_failure,
)
from relaymesh.store.projection import Projection, State
from relaymesh.store.series import SERIES_MAX, SeriesRows
from relaymesh.store.tasks import TaskChanges

INT64_MAX = (1 << 63) - 1
"""A time beyond what SQLite can hold is stored as this; only the shown time saturates."""

Settled = tuple[State, int, int]
"""How a message ended: its state, the attempts that this adds, when. One is shared by a whole record."""

How = TypeVar("How")


class Touch(NamedTuple):
    """What else changed on a message. None leaves the column as it is."""

    attempts: int | None = None
    attempts_more: int = 0
    due: int | None = None
    priority: int | None = None
    at: int = 0
    failures: tuple[Failure, ...] = ()
    """Attempts that failed, to be added to those before."""

    def failed(self, failure: Failure | None) -> tuple[Failure, ...]:
        """The failures with one more, if it was one."""
        return self.failures if failure is None else tuple(with_failure(list(self.failures), failure))


UNTOUCHED = Touch()


class LetterSettled(NamedTuple):
    """What became of a dead letter, and of the message row it belongs to."""

    state: State
    at: int
    gone: bool = False
    """The letter itself was purged. A message that was redriven before stays `redriven`."""


class Changes:
    """One batch, collected by `add`, then read out. Rows of new messages are read before `settled`."""

    __slots__ = (
        "_accepted",
        "_published",
        "_redriven",
        "files",
        "letters",
        "letters_settled",
        "settled",
        "tasks",
        "touched",
    )

    def __init__(self) -> None:
        self._accepted: list[tuple[int, Accepted]] = []
        self._published: list[tuple[int, Published, Sequence[str]]] = []
        self._redriven: list[tuple[int, Redriven, int]] = []
        self.settled: dict[str, dict[int, Settled]] = {}
        self.touched: dict[str, dict[int, Touch]] = {}
        self.letters: list[DeadLetter] = []
        self.letters_settled: dict[str, dict[int, LetterSettled]] = {}
        self.tasks = TaskChanges()
        self.files: list[object] = []
        """Sequence, mailbox and path of new messages whose content is in a file. Known with their rows."""

    def add(self, batch: Iterable[Projection]) -> None:
        for base, record, detail, tasks, steps in batch:
            collect = _COLLECT.get(record.__class__)
            if collect is not None:
                collect(self, base, record, detail)
            if tasks:
                self.tasks.add(tasks, steps)

    # -- collecting, one function a kind of record

    def _add_accepted(self, base: int, record: Accepted, _detail: object) -> None:
        self._accepted.append((base, record))

    def _add_published(self, base: int, record: Published, detail: Sequence[str]) -> None:
        self._published.append((base, record, detail))

    def _add_acked(self, _base: int, record: Acked, _detail: object) -> None:
        self._settle(record.mailbox, record.sequences, ("acked", 1, record.at))

    def _add_dropped(self, _base: int, record: Dropped, _detail: object) -> None:
        self._settle(record.mailbox, record.sequences, ("dropped", 0, record.at))

    def _settle(self, mailbox: str, sequences: list[int], how: Settled) -> None:
        settled = self.settled.get(mailbox)
        if settled is None:
            settled = self.settled[mailbox] = {}
        settled.update(dict.fromkeys(sequences, how))

    def _add_returned(self, _base: int, record: Returned, _detail: object) -> None:
        burned = int(record.cause in BURNING)
        touched = self.touched.setdefault(record.mailbox, {})
        failures = record.failures or [None] * record.count
        for sequence, due, failure in zip(record.sequences, record.due, failures, strict=True):
            touch = touched.get(sequence, UNTOUCHED)
            due_at = min(max(due, record.at), INT64_MAX)
            touched[sequence] = touch._replace(
                attempts_more=touch.attempts_more + burned,
                due=due_at,
                at=record.at,
                failures=touch.failed(failure),
            )

    def _add_reprioritised(self, _base: int, record: Reprioritised, _detail: object) -> None:
        self._touch(record.mailbox, record.sequences, record.at, priority=record.priority)

    def _add_forced(self, _base: int, record: DelayedForced, _detail: object) -> None:
        self._touch(record.mailbox, record.sequences, record.at, due=record.at)

    def _touch(self, mailbox: str, sequences: list[int], at: int, **changed: Any) -> None:
        touched = self.touched.setdefault(mailbox, {})
        for sequence in sequences:
            touched[sequence] = touched.get(sequence, UNTOUCHED)._replace(at=at, **changed)

    def _add_dead(self, _base: int, record: DeadLettered, detail: list[DeadLetter]) -> None:
        self._settle(record.mailbox, record.sequences, ("dead", 0, record.at))
        self.letters += detail
        touched = self.touched.setdefault(record.mailbox, {})
        failures = record.failures or [None] * record.count
        for letter, failure in zip(detail, failures, strict=True):
            touch = touched.get(letter.sequence, UNTOUCHED)
            touched[letter.sequence] = touch._replace(
                attempts=letter.attempts, at=record.at, failures=touch.failed(failure)
            )

    def _add_redriven(self, base: int, record: Redriven, detail: int) -> None:
        self._redriven.append((base, record, detail))
        settled = self.letters_settled.setdefault(record.source, {})
        settled[record.dead_sequence] = LetterSettled("redriven", record.at)

    def _add_letters_purged(self, _base: int, record: DeadLettersPurged, _detail: object) -> None:
        purged = LetterSettled("purged", record.at, gone=True)
        settled = self.letters_settled.setdefault(record.mailbox, {})
        for dead_sequence in record.dead_sequences:
            before = settled.get(dead_sequence)
            settled[dead_sequence] = purged if before is None else before._replace(gone=True)

    # -- reading out: flat lists of values, row after row

    def _note_files(self, base: int, mailbox: str, envelopes: Sequence[Envelope]) -> None:
        for sequence, e in enumerate(envelopes, base):
            if e.encoding >= IN_FILE and (reference := the_reference(e.content)) is not None:
                self.files += (sequence, mailbox, reference.path)

    def direct_rows(self) -> tuple[list[object], SeriesRows]:
        """New rows of `messages` for messages sent to a mailbox: by themselves, and in series."""
        rows: list[object] = []
        series = SeriesRows()
        for base, record in self._accepted:
            mailbox, at = record.mailbox, record.at
            namespace = namespace_of(mailbox)
            pending: Settled = ("pending", 0, at)
            take = self.settled.get(mailbox, {}).pop
            hows = [take(sequence, pending) for sequence in range(base, base + record.count)]
            for start, end, (state, attempts, updated) in _stretches(hows):
                first, envelopes = base + start, record.envelopes[start:end]
                due = _due(at, envelopes[0].delay_ms)
                if series.take(first, envelopes, (namespace, mailbox, state, attempts, at, due, updated)):
                    continue
                self._note_files(first, mailbox, envelopes)
                for sequence, e in enumerate(envelopes, first):
                    due = _due(at, e.delay_ms)
                    rows += (sequence, namespace, mailbox, e.id, e.type, e.sender, e.task, e.priority,
                             state, attempts, at, due, updated, content_digest(e))  # fmt: skip
        return rows, series

    @property
    def accepted(self) -> tuple[int, int] | None:
        """The first and the last sequence of messages sent to a mailbox."""
        if not self._accepted:
            return None
        base, record = self._accepted[-1]
        return self._accepted[0][0], base + record.count - 1

    def routed_rows(self) -> tuple[list[object], list[object]]:
        """New rows of `messages` and of `admissions` for messages published on a topic: a row in each
        mailbox, admitted once."""
        rows: list[object] = []
        admitted: list[object] = []
        for base, record, mailboxes in self._published:
            topic, at = record.topic, record.at
            target, topic_namespace = topic_target(topic), namespace_of(topic)
            pending = ("pending", 0, at)
            takes = [(namespace_of(m), m, self.settled.get(m, {}).pop) for m in mailboxes]
            for mailbox in mailboxes:
                self._note_files(base, mailbox, record.envelopes)
            for sequence, e in enumerate(record.envelopes, base):
                due = _due(at, e.delay_ms)
                for namespace, mailbox, take in takes:
                    state, attempts, updated = take(sequence, pending)
                    rows += (sequence, namespace, mailbox, topic, e.id, e.type, e.sender, e.task, e.priority,
                             state, attempts, at, due, updated)  # fmt: skip
                admitted += (
                    sequence, topic_namespace, target, record.targets, e.id, content_digest(e), at, due,
                    e.sender,
                )  # fmt: skip
        return rows, admitted

    def redriven_rows(self) -> list[object]:
        """New rows of `messages` for dead letters that went back into a mailbox, due at once."""
        rows: list[object] = []
        for sequence, record, redrives in self._redriven:
            mailbox, at, e = record.mailbox, record.at, record.envelope
            self._note_files(sequence, mailbox, [e])
            pending = ("pending", 0, at)
            state, attempts, updated = self.settled.get(mailbox, {}).pop(sequence, pending)
            rows += (sequence, namespace_of(mailbox), mailbox, redrives, e.id, e.type, e.sender, e.task,
                     e.priority, state, attempts, at, at, updated)  # fmt: skip
        return rows

    def letter_rows(self) -> list[object]:
        """New rows of `dead_letter_queue`, all pending: the kernel may by now have marked a letter
        redriven, but that is a later record's to say."""
        rows: list[object] = []
        for letter in self.letters:
            e, last = letter.envelope, letter.failures[-1] if letter.failures else None
            file = the_reference(e.content) if e.encoding >= IN_FILE else None
            rows += (
                e.id, e.sender, letter.mailbox, e.content if file is None else file.path.encode(), letter.at,
                max(letter.attempts - 1, 0),
                letter.reason, last.stack if last else None, namespace_of(letter.mailbox),
                letter.mailbox, letter.redrives, letter.sequence, letter.dead_sequence, letter.accepted_at,
                letter.attempts, letter.code, _json(letter.failures),
                e.type, e.encoding,
            )  # fmt: skip
        return rows

    def touched_rows(self) -> list[object]:
        rows: list[object] = []
        for mailbox, touched in self.touched.items():
            for sequence, touch in touched.items():
                *changed, failures = touch
                rows += (sequence, mailbox, *changed, _json(failures) if failures else None)
        return rows


def _stretches(hows: list[Settled]) -> Iterator[tuple[int, int, Settled]]:
    """Start and end of those that ended in the same way, one after the other, at most a series."""
    start = 0
    for how, same in groupby(hows):
        end = start + len(list(same))
        while start < end:
            yield start, min(end, start + SERIES_MAX), how
            start = min(end, start + SERIES_MAX)


def _due(at: int, delay_ms: int) -> int:
    return min(at + delay_ms, INT64_MAX) if delay_ms else at


def _json(failures: Sequence[Failure]) -> str:
    return msgspec.json.encode(failures).decode()


def series(changed: dict[int, How]) -> dict[How, list[int]]:
    """Sequences that changed in the same way, together: one statement each."""
    alike: dict[How, list[int]] = {}
    for sequence, how in changed.items():
        alike.setdefault(how, []).append(sequence)
    return alike


_COLLECT: dict[type, Callable[[Changes, int, Any, Any], None]] = {
    Accepted: Changes._add_accepted,
    Published: Changes._add_published,
    Acked: Changes._add_acked,
    Dropped: Changes._add_dropped,
    Returned: Changes._add_returned,
    Reprioritised: Changes._add_reprioritised,
    DelayedForced: Changes._add_forced,
    DeadLettered: Changes._add_dead,
    Redriven: Changes._add_redriven,
    DeadLettersPurged: Changes._add_letters_purged,
}
