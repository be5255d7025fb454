"""A journal to read: written at the journal's own speed, without a mesh, with traffic as agents make it.

Each message is accepted, granted and acked; one in twenty fails once before, one in two hundred dies. Frames
hold 100 messages, as `send_many(100)` makes them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from relaymesh.journal import JournalSettings, recover
from relaymesh.kernel import records
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import AnyRecord, Failure
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.node.disk import RealDisk
from relaymesh.wire.records import encode_records

START_MS = 1_767_225_600_000
MAILBOXES = 50
PER_FRAME = 100
CONTENT_BYTES = 200


def write_journal(path: Path, events: int, seed: int = 1) -> int:
    """At least so many events into a new directory at `path`; returns how many."""
    path.mkdir(parents=True)
    recovery = recover(RealDisk(path), JournalSettings())
    for _ in recovery.frames():
        pass
    writer = recovery.open_writer(START_MS * 1_000_000)
    traffic = _traffic(random.Random(seed))
    while writer.next_sequence <= events:
        frame = next(traffic)
        writer.append(encode_records(frame), sum(each.count for each in frame), frame[0].at * 1_000_000)
    writer.close()
    return writer.next_sequence - 1


def _traffic(rng: random.Random) -> Iterator[list[AnyRecord]]:
    boxes = [f"default/agent-{number}" for number in range(MAILBOXES)]
    yield [records.EpochStarted(1, START_MS, 1)]
    yield [records.MailboxOpened(1, START_MS, box, MailboxSettings()) for box in boxes]
    sequence, token, at = 2 + MAILBOXES, 1 << 40 | 1, START_MS
    while True:
        at += rng.randrange(5, 50)
        box = rng.choice(boxes)
        frame = _life(rng, box, sequence, token, at)
        yield frame
        sequence += sum(each.count for each in frame)
        token += sum(each.count for each in frame if isinstance(each, records.Granted))


def _life(rng: random.Random, box: str, sequence: int, token: int, at: int) -> list[AnyRecord]:
    """A batch from its acceptance to its end."""
    sequences = list(range(sequence, sequence + PER_FRAME))
    envelopes = [_envelope(rng, number) for number in sequences]
    failed = [number for number in sequences if rng.random() < 0.05]
    dead = [number for number in failed if rng.random() < 0.1]
    done = [number for number in sequences if number not in dead]
    frame: list[AnyRecord] = [
        records.Accepted(PER_FRAME, at, box, envelopes),
        records.Granted(PER_FRAME, at, box, "worker-1", token, sequences),
    ]
    if failed:
        failures: list[Failure | None] = [Failure(1, at, "timeout", "the model did not answer")] * len(failed)
        due = [at + 1000] * len(failed)
        frame.append(records.Returned(len(failed), at, box, "nack", failed, due, failures))
        frame.append(records.Granted(len(failed), at, box, "worker-2", token + PER_FRAME, failed))
    if dead:
        failures = [Failure(2, at, "fatal", "no such tool", "Traceback …")] * len(dead)
        frame.append(records.DeadLettered(len(dead), at, box, dead, "fatal", failures, True))
    frame.append(records.Acked(len(done), at, box, done))
    return frame


def _envelope(rng: random.Random, number: int) -> Envelope:
    return Envelope(
        id=f"0192d3e4-{number & 0xFFFF:04x}-7abc-8def-{number:012x}",
        sender=f"default/agent-{number % MAILBOXES}",
        content=(b'{"do":"review","n":%d,"text":"' % number).ljust(CONTENT_BYTES - 2, b"x") + b'"}',
        type=rng.choice(("message", "task_assign", "status_report")),
        priority=rng.randrange(1, 6),
        task=f"task-{number % 1000}" if number % 3 else None,
    )
