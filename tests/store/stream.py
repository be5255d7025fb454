"""Random record streams, and a dumb model of the tables they lead to: dicts, changed one event at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import apsw

from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.dedup import digest_of
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import (
    Accepted,
    Acked,
    AnyRecord,
    Completed,
    DeadLettered,
    DeadLettersPurged,
    DelayedForced,
    Dropped,
    EpochStarted,
    Failure,
    Granted,
    Published,
    Redriven,
    Reprioritised,
    Returned,
)
from relaymesh.store import Projection

Row = dict[str, Any]

MAILBOXES = ["default/a", "default/b", "team/c"]
SUBSCRIPTIONS = ["default/t.*:one", "default/t.*:two"]
TOPIC = "default/t.x"
OPERATIONS = [
    "accept",
    "accept",
    "accept_alike",
    "publish",
    "publish",
    "grant",
    "ack",
    "ack",
    "drop",
    "nack",
    "release",
    "reprioritise",
    "force",
    "die",
    "redrive",
    "purge",
    "complete",
    "epoch",
]


@dataclass
class Stream:
    """`step` appends one record and tells the model. Choices are plain numbers, so that they shrink."""

    at: int = 1_000_000
    sequence: int = 0
    projections: list[Projection] = field(default_factory=list)
    messages: dict[tuple[int, str], Row] = field(default_factory=dict)
    letters: dict[tuple[str, int], Row] = field(default_factory=dict)
    admitted: dict[tuple[str, str], Row] = field(default_factory=dict)
    envelopes: dict[tuple[int, str], Envelope] = field(default_factory=dict)

    def step(self, operation: int, choice: int, size: int) -> None:
        self.at += choice % 3
        getattr(self, "_" + OPERATIONS[operation % len(OPERATIONS)])(choice, size)

    def emit(self, record: AnyRecord, detail: object = None) -> None:
        self.projections.append(Projection(self.sequence, record, detail))
        self.sequence += record.count

    # -- messages come in

    def envelope(self, index: int, choice: int) -> Envelope:
        delay = (0, 0, 5_000, 1 << 63)[choice % 4]
        name = f"m-{self.sequence + index}" if choice % 7 else f"again-{self.sequence + index}"
        return Envelope(
            name, "default/s", b"c%d" % choice, priority=choice % 5 + 1, delay_ms=delay, task=None
        )

    def enter(self, sequence: int, mailbox: str, e: Envelope, **more: Any) -> None:
        self.envelopes[sequence, mailbox] = e
        self.messages[sequence, mailbox] = {
            "namespace": mailbox.partition("/")[0], "msg_id": e.id, "redrive_count": 0,
            "topic": None, "priority": e.priority, "state": "pending",
            "attempts": 0, "created_at_ms": self.at, "updated_at_ms": self.at,
            "due_at_ms": min(self.at + e.delay_ms, (1 << 63) - 1),
        } | more  # fmt: skip

    def admit(self, sequence: int, target: str, e: Envelope, targets: int) -> None:
        due = min(self.at + e.delay_ms, (1 << 63) - 1)
        self.admitted[target, e.id] = {
            "namespace": target.removeprefix("topic:").partition("/")[0],
            "sequence": sequence, "processed_at_ms": self.at, "result_hash": digest_of(e.content),
            "targets": targets, "due_at_ms": due,
        }  # fmt: skip

    def _accept(self, choice: int, size: int) -> None:
        mailbox = MAILBOXES[choice % 3]
        envelopes = [self.envelope(i, choice + i) for i in range(size)]
        for i, e in enumerate(envelopes):
            self.enter(self.sequence + i, mailbox, e)
            self.admit(self.sequence + i, mailbox, e, 1)
        self.emit(Accepted(size, self.at, mailbox, envelopes))

    def _accept_alike(self, choice: int, size: int) -> None:
        """Enough for a run; sometimes one id is longer, or has a letter that is two bytes long."""
        mailbox, count = MAILBOXES[choice % 3], size * 5
        names = [f"r-{self.sequence + i:08}" for i in range(count)]
        names[choice % count] += ("", "", "", "x", "ü")[choice % 5]
        delay = (0, 0, 5_000, 1 << 63)[choice % 4]
        envelopes = [
            Envelope(name, "default/s", b"c%d" % i, priority=choice % 5 + 1, delay_ms=delay)
            for i, name in enumerate(names)
        ]
        for i, e in enumerate(envelopes):
            self.enter(self.sequence + i, mailbox, e)
            self.admit(self.sequence + i, mailbox, e, 1)
        self.emit(Accepted(count, self.at, mailbox, envelopes))

    def _publish(self, choice: int, size: int) -> None:
        routed = SUBSCRIPTIONS[: choice % 3]
        envelopes = [self.envelope(i, choice + i) for i in range(size)]
        for i, e in enumerate(envelopes):
            for mailbox in routed:
                self.enter(self.sequence + i, mailbox, e, topic=TOPIC)
            self.admit(self.sequence + i, "topic:" + TOPIC, e, len(routed))
        self.emit(Published(size, self.at, TOPIC, len(routed), envelopes), routed)

    # -- what happens to those that are pending

    def some(self, choice: int, size: int, state: str = "pending") -> tuple[str, list[int]]:
        """Up to `size` messages of one mailbox."""
        found = [key for key, row in self.messages.items() if row["state"] == state]
        if not found:
            return "", []
        mailbox = found[choice % len(found)][1]
        return mailbox, [sequence for sequence, where in found if where == mailbox][:size]

    def change(self, mailbox: str, sequences: list[int], **changed: Any) -> None:
        for sequence in sequences:
            row = self.messages[sequence, mailbox]
            row["attempts"] += changed.get("more", 0)
            row |= {name: value for name, value in changed.items() if name != "more"}
            row["updated_at_ms"] = self.at

    def _grant(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if sequences:
            self.emit(Granted(len(sequences), self.at, mailbox, "h", 1, sequences))

    def _complete(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if sequences:
            self.emit(Completed(len(sequences), self.at, mailbox, sequences))

    def _epoch(self, choice: int, size: int) -> None:
        self.emit(EpochStarted(1, self.at, choice))

    def _ack(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if sequences:
            self.change(mailbox, sequences, state="acked", more=1)
            self.emit(Acked(len(sequences), self.at, mailbox, sequences))

    def _drop(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if sequences:
            self.change(mailbox, sequences, state="dropped")
            self.emit(Dropped(len(sequences), self.at, mailbox, sequences, "invalid"))

    def _nack(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if sequences:
            due = [self.at + choice for _ in sequences]
            failures = [Failure(1, self.at, "timeout") for _ in sequences]
            self.change(mailbox, sequences, due_at_ms=self.at + choice, more=1)
            self.emit(Returned(len(sequences), self.at, mailbox, "nack", sequences, due, [*failures]))

    def _release(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if sequences:
            nothing: list[Failure | None] = [None for _ in sequences]
            self.change(mailbox, sequences, due_at_ms=self.at)
            due = [self.at - 1 for _ in sequences]
            self.emit(Returned(len(sequences), self.at, mailbox, "released", sequences, due, nothing))

    def _reprioritise(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if sequences:
            self.change(mailbox, sequences, priority=choice % 5 + 1)
            self.emit(Reprioritised(len(sequences), self.at, mailbox, sequences, choice % 5 + 1))

    def _force(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if sequences:
            self.change(mailbox, sequences, due_at_ms=self.at)
            self.emit(DelayedForced(len(sequences), self.at, mailbox, sequences))

    # -- dead letters

    def _die(self, choice: int, size: int) -> None:
        mailbox, sequences = self.some(choice, size)
        if not sequences:
            return
        self.change(mailbox, sequences, state="dead", attempts=choice % 4)
        failures = [Failure(choice % 4, self.at, "fatal", "why", "stack") for _ in sequences]
        letters = [self._letter(mailbox, sequence, i, failures[i]) for i, sequence in enumerate(sequences)]
        self.emit(DeadLettered(len(sequences), self.at, mailbox, sequences, "fatal", [*failures]), letters)

    def _letter(self, mailbox: str, sequence: int, index: int, failure: Failure) -> DeadLetter:
        row = self.messages[sequence, mailbox]
        dead, redrives, attempts = self.sequence + index, row["redrive_count"], row["attempts"]
        self.letters[mailbox, dead] = {
            "message_id": row["msg_id"], "redrive_count": redrives, "sequence": sequence, "status": "pending",
            "attempts": attempts, "failed_at": self.at, "code": "fatal",
        }  # fmt: skip
        return DeadLetter(
            mailbox, sequence, dead, self.at, row["created_at_ms"], "fatal",
            self.envelopes[sequence, mailbox], attempts, redrives, [failure],
        )  # fmt: skip

    def pending_letters(self) -> list[tuple[str, int]]:
        return [key for key, row in self.letters.items() if row["status"] == "pending"]

    def _redrive(self, choice: int, size: int) -> None:
        pending = self.pending_letters()
        if not pending:
            return
        source, dead = pending[choice % len(pending)]
        letter = self.letters[source, dead]
        letter["status"] = "redriven"
        e = self.envelopes[letter["sequence"], source]
        self.change(source, [letter["sequence"]], state="redriven")
        mailbox = source if choice % 2 else MAILBOXES[0]
        count = letter["redrive_count"] + 1
        self.enter(self.sequence, mailbox, e, redrive_count=count, due_at_ms=self.at)
        self.emit(Redriven(1, self.at, source, dead, mailbox, e), count)

    def _purge(self, choice: int, size: int) -> None:
        if not self.letters:
            return
        mailbox = list(self.letters)[choice % len(self.letters)][0]
        dead = [sequence for where, sequence in self.letters if where == mailbox][:size]
        for sequence in dead:
            letter = self.letters.pop((mailbox, sequence))
            if letter["status"] == "pending":
                self.change(mailbox, [letter["sequence"]], state="purged")
        self.emit(DeadLettersPurged(len(dead), self.at, mailbox, dead))

    def tables(self) -> dict[str, list[Row]]:
        """What the store should hold."""
        return {
            "messages": [
                {"sequence": s, "mailbox": m} | row for (s, m), row in sorted(self.messages.items())
            ],
            "dead_letter_queue": [
                {"mailbox": m, "dead_sequence": s} | row for (m, s), row in sorted(self.letters.items())
            ],
            "admissions": [
                {"target": t, "idempotency_key": k} | row for (t, k), row in sorted(self.admitted.items())
            ],
        }


def stored(path: str, like: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The same columns, read from the file by a stranger."""
    order = {
        "messages": "sequence, mailbox",
        "dead_letter_queue": "mailbox, dead_sequence",
        "admissions": "target, idempotency_key",
    }
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        found: dict[str, list[Row]] = {}
        for table, rows in like.items():
            cursor = connection.execute(f"SELECT * FROM {table} ORDER BY {order[table]}")
            names = list(rows[0]) if rows else []
            found[table] = [
                {name: row[name] for name in names}
                for row in (
                    dict(zip([d[0] for d in cursor.get_description()], r, strict=True)) for r in cursor
                )
            ]
        return found
    finally:
        connection.close()


def whole(path: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every column of every table, but for marks and numbers that depend on how records were batched."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        found = {}
        for table, left_out in (("messages", ""), ("dead_letter_queue", "id"), ("admissions", "boundary")):
            names = [r[1] for r in connection.execute(f"PRAGMA table_xinfo({table})") if r[1] != left_out]
            found[table] = sorted(
                connection.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall(), key=repr
            )
        return found
    finally:
        connection.close()
