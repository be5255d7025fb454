"""Journals small enough to try everything on: a few frames per segment, payloads that say who they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relaymesh.journal import Disk, JournalSettings, Recovery, Writer, recover, write_checkpoint

SMALL = JournalSettings(segment_bytes_max=450, allocate_bytes=200, checkpoint_reserve_bytes=1000)


def payload(number: int) -> bytes:
    """The payload of frame `number`: distinct, of uneven length."""
    return f"frame {number};".encode() * (1 + number % 3)


def events(number: int) -> int:
    return 1 + number % 4


@dataclass
class Ledger:
    """What the writer's user knows: what was tried, what was promised."""

    tried: list[bytes] = field(default_factory=list)
    promised: int = 0
    epochs: list[int] = field(default_factory=list)

    def append(self, writer: Writer) -> None:
        number = len(self.tried)
        self.tried.append(payload(number))
        writer.append(payload(number), events(number), 1000 + number)

    def sync(self, writer: Writer) -> None:
        count = len(self.tried)
        writer.sync()
        self.promised = count

    def next_sequence(self) -> int:
        return 1 + sum(events(number) for number in range(len(self.tried)))

    def recovered(self, state: list[bytes]) -> None:
        """Check what a recovery found against the promises, and go on from there."""
        assert state == self.tried[: len(state)], "frames came back changed, or with a hole"
        assert len(state) >= self.promised, f"{self.promised - len(state)} synced frames are lost"
        self.tried = state
        self.promised = len(state)

    def start(self, disk: Disk) -> Writer:
        recovery = recover(disk, SMALL)
        assert all(recovery.epoch > epoch for epoch in self.epochs), "an epoch came back"
        self.epochs.append(recovery.epoch)
        state = replay(recovery)
        writer = recovery.open_writer(5000)
        self.recovered(state)
        assert writer.next_sequence == writer.synced == self.next_sequence()
        return writer

    def checkpoint(self, disk: Disk, writer: Writer) -> None:
        self.sync(writer)
        write_checkpoint(disk, writer.synced, self.chunks(), 7000, epoch=writer.epoch)

    def chunks(self) -> Iterator[bytes]:
        """The state of this test's machine is simply everything appended."""
        return iter(list(self.tried))


def replay(recovery: Recovery) -> list[bytes]:
    """The state after recovery: the checkpoint's chunks, then the frames behind it."""
    return [*recovery.chunks(), *(frame.payload for frame in recovery.frames())]


def state_of(disk: Disk) -> list[bytes]:
    """Recover, look, and leave without writing a segment."""
    recovery = recover(disk, SMALL)
    try:
        return replay(recovery)
    finally:
        recovery.close()
