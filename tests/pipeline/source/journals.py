"""Journals made for a test: real directories, written by the journal's own writer, record by record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from relaymesh.journal import JournalSettings, Writer, recover
from relaymesh.journal.identity import read_mesh_id
from relaymesh.kernel import records
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import AnyRecord, Failure
from relaymesh.kernel.schedules.schedule import Work
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.tasks.plan import Plan, StepPlan
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.source.batch import BatchReader
from relaymesh.pipeline.source.options import SourceOptions
from relaymesh.wire.records import encode_records

SMALL = JournalSettings(segment_bytes_max=900, allocate_bytes=4_096, checkpoint_reserve_bytes=1000)
T0 = 1_767_225_600_000
"""2026-01-01T00:00:00Z, in ms: the time of the first record."""

Frames = Iterable[Sequence[AnyRecord]]


def write_frames(path: Path, frames: Frames, settings: JournalSettings = SMALL) -> None:
    """Append the frames to the journal at `path`, as one start of a node would."""
    writer = open_writer(path, settings)
    for frame in frames:
        append(writer, frame)
    writer.sync()
    writer.close()


def open_writer(path: Path, settings: JournalSettings = SMALL) -> Writer:
    path.mkdir(parents=True, exist_ok=True)
    recovery = recover(RealDisk(path), settings)
    for _ in recovery.frames():
        pass
    return recovery.open_writer(T0 * 1_000_000)


def append(writer: Writer, frame: Sequence[AnyRecord]) -> None:
    writer.append(encode_records(frame), sum(each.count for each in frame), frame[0].at * 1_000_000)


def envelope(number: int, **fields: Any) -> Envelope:
    return Envelope(id=f"m-{number}", sender="default/planner", content=b'{"n":%d}' % number, **fields)


def accepted(number: int, count: int = 1, at: int = T0) -> records.Accepted:
    return records.Accepted(count, at, "default/coder", [envelope(number + i) for i in range(count)])


def traffic(frames: int, per_frame: int = 3) -> list[list[AnyRecord]]:
    """Accepts, grants and acks of `per_frame` messages, one record each, a second apart; then the next."""
    made: list[list[AnyRecord]] = []
    sequence = 1
    for number in range(frames):
        at = T0 + number * 1000
        sequences = list(range(sequence, sequence + per_frame))
        made.append(
            [
                accepted(sequence, per_frame, at),
                records.Granted(per_frame, at, "default/coder", "c-1", 1 << 40 | sequence, sequences),
                records.Acked(per_frame, at, "default/coder", sequences),
            ]
        )
        sequence += 3 * per_frame
    return made


PLAN = Plan(
    name="release",
    steps=(StepPlan(name="a", mailbox="default/coder"), StepPlan(name="b", mailbox="default/coder")),
)


def one_of_each() -> list[AnyRecord]:
    """A record of every kind, most with two events. They need not make sense together."""
    box, at = "default/coder", T0
    failure = Failure(1, at, "timeout", "too slow", "line 1")
    return [
        records.EpochStarted(1, at, 1),
        records.MailboxOpened(1, at, box, MailboxSettings(capacity=7)),
        records.Subscribed(1, at, "news/#", "default/news:coder", MailboxSettings()),
        records.Accepted(2, at, box, [envelope(1), envelope(2, priority=1, tags=("a", "b"), task="t")]),
        records.Published(2, at, "news/eu", 3, [envelope(3), envelope(4, extra=b'{"x":1}')]),
        records.Granted(2, at, box, "holder-1", 1 << 40 | 5, [4, 5], True, 30_000),
        records.Returned(2, at, box, "nack", [4, 5], [at + 1000, 1 << 60], [failure, None]),
        records.Returned(1, at, box, "released", [4], [at], []),
        records.DeadLettered(2, at, box, [4, 5], "retries_exhausted", [failure, None], True),
        records.Redriven(1, at, box, 13, "default/second", envelope(1, origin="m-0", timestamp_ms=at - 5)),
        records.DeadLettersPurged(1, at, box, [14]),
        records.Reprioritised(2, at, box, [15, 16], 2),
        records.DelayedForced(1, at, box, [15]),
        records.Dropped(1, at, box, [15], "duplicate"),
        records.Completed(1, at, box, [16]),
        records.Acked(1, at, box, [16]),
        records.Suspended(1, at, "default/news:coder", "dead_letters_full"),
        records.Resumed(1, at, "default/news:coder"),
        records.Unsubscribed(1, at, "news/#", "default/news:coder"),
        records.TaskSubmitted(1, at, "t-1", PLAN, b"{}", "key", b"\x0f", box),
        records.StepsSent(2, at, "t-1", box, [17, 18], [0, 1]),
        records.StepsAdded(1, at, "t-1", 1, [b"1", b"2"]),
        records.StepsTaken(1, at, box, [17], 90_000),
        records.StepsEnded(1, at, "t-1", [0], "FAILED", [], 1 << 40 | 6, "missing", "no such file"),
        records.TaskClosing(1, at, "t-1", "CANCELLED", "not wanted", box, True),
        records.TaskEnded(1, at, "t-1", "CANCELLED", b"null", "", "not wanted"),
        records.WorkflowPut(1, at, "default", "release", "2.1", b"{}", b"\x0f", box),
        records.WorkflowRemoved(1, at, "default", "release", ["1", "2.1"], box),
        records.StepWaits(1, at, "t-1", 1, "ask", at + 1000, 17, box),
        records.SignalReceived(1, at, "t-1", "go", "s-1", b'"canary"', box),
        records.StepsWithdrawn(2, at, "t-1", [0, 1], "budget"),
        records.TaskUndoing(1, at, "t-1", [1, 0], [False, True]),
        records.UsageNoted(1, at, "t-1", 1, 1 << 40 | 6, 2_500_000, 1_200),
        records.BudgetPaused(1, at, "t-1", "its budget is used"),
        records.BudgetSet(1, at, "t-1", 5_000_000, 0, box),
        records.NoticeSent(1, at, "t-1", "budget", box),
        records.ScheduleSet(
            1, at, "default", "nightly", "0 7 * * *", "UTC", "one", Work("release"), box, 0, at + 60_000
        ),
        records.ScheduleFired(
            1, at, "default", "nightly", at + 60_000, at + 120_000, "t-2", 1, "passed over"
        ),
        records.SchedulePaused(1, at, "default", "nightly", True, 0, box),
        records.ScheduleRemoved(1, at, "default", "nightly", box),
        records.AgentRegistered(1, at, box, "coder", ("python", "review"), "1.0", b'{"gpu":1}'),
    ]


def read_rows(path: Path | str, **options: Any) -> list[dict[str, Any]]:
    """What a batch read gives, without Spark: the rows of all partitions, in order."""
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    reader = BatchReader(SourceOptions.parse(given))
    return [row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()]


def mesh_of(path: Path | str) -> str:
    """The mesh id of a directory that was started."""
    found = read_mesh_id(RealDisk(Path(path)))
    assert found is not None
    return found


def segments(path: Path) -> list[Path]:
    found = [*path.glob("journal/*.rmj"), *path.glob("archive/*.rmj")]
    return sorted(found, key=lambda file: file.name)
