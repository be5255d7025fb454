"""A journal to read: written at the journal's own speed, without a mesh, with traffic as agents make it.

Messages come a hundred at a time, as `send_many(100)` makes them, and are granted, worked on and acked some
milliseconds later; one in twenty fails once before, one in two hundred dies. Nothing in it contradicts what a
mesh promises: the audit passes.
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
PAUSE_MS = (10_000, 60_000)
"""Between two batches: two million events are some days."""
RETRY_MS = 1_000
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
        for frame in next(traffic):
            writer.append(encode_records(frame), sum(each.count for each in frame), frame[0].at * 1_000_000)
    writer.close()
    return writer.next_sequence - 1


def _traffic(rng: random.Random) -> Iterator[list[list[AnyRecord]]]:
    """One batch of messages after the other, each in all of its frames."""
    boxes = [f"default/agent-{number}" for number in range(MAILBOXES)]
    yield [
        [records.EpochStarted(1, START_MS, 1)],
        [records.MailboxOpened(1, START_MS, box, MailboxSettings()) for box in boxes],
    ]
    sequence, token, at = 2 + MAILBOXES, 1 << 40 | 1, START_MS
    while True:
        at += rng.randrange(*PAUSE_MS)
        frames = _life(rng, rng.choice(boxes), sequence, token, at)
        yield frames
        every = [record for frame in frames for record in frame]
        sequence += sum(each.count for each in every)
        token += sum(each.count for each in every if isinstance(each, records.Granted))
        at = every[-1].at


def _life(rng: random.Random, box: str, sequence: int, token: int, at: int) -> list[list[AnyRecord]]:
    """A batch from its acceptance to its end: accepted, granted, settled, and again what failed."""
    sequences = list(range(sequence, sequence + PER_FRAME))
    failed = [number for number in sequences if rng.random() < 0.05]
    done = [number for number in sequences if number not in failed]
    granted = at + rng.randrange(1, 400)
    ended = granted + rng.randrange(5, 2_000)
    frames: list[list[AnyRecord]] = [
        [records.Accepted(PER_FRAME, at, box, [_envelope(rng, number) for number in sequences])],
        [records.Granted(PER_FRAME, granted, box, "worker-1", token, sequences)],
        [records.Acked(len(done), ended, box, done)],
    ]
    if failed:
        failures: list[Failure | None] = [Failure(1, ended, "timeout", "the model did not answer")]
        due = ended + RETRY_MS
        again = due + rng.randrange(1, 100)
        frames[-1].append(
            records.Returned(
                len(failed), ended, box, "nack", failed, [due] * len(failed), failures * len(failed)
            )
        )
        frames.append([records.Granted(len(failed), again, box, "worker-2", token + PER_FRAME, failed)])
        frames.append(_second_end(rng, box, failed, again + rng.randrange(5, 2_000)))
    return frames


def _second_end(rng: random.Random, box: str, tried: list[int], at: int) -> list[AnyRecord]:
    dead = [number for number in tried if rng.random() < 0.1]
    done = [number for number in tried if number not in dead]
    frame: list[AnyRecord] = []
    if dead:
        failures: list[Failure | None] = [Failure(2, at, "fatal", "no such tool", "Traceback …")]
        frame.append(records.DeadLettered(len(dead), at, box, dead, "fatal", failures * len(dead), True))
    if done:
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
