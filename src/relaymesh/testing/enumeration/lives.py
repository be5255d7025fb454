"""Scripted lives of a journal: everything a node does to its directory, small enough to crash everywhere."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from relaymesh.journal import (
    JournalSettings,
    Recovery,
    Writer,
    archive_behind,
    drop_archived,
    recover,
    write_checkpoint,
)
from relaymesh.testing.enumeration.plain import PlainDisk
from relaymesh.testing.enumeration.recording import Promise, RecordingDisk

__all__ = ["LIVES", "Life", "Misbehaved", "Scribe", "brought_back", "events", "recorded", "recovery_recorded"]

NOTHING = Promise(0, 0, 0)


class Misbehaved(Exception):
    """A recovery that did not do what was promised. `silent` unless it said so itself, by failing."""

    def __init__(self, message: str, *, silent: bool = True) -> None:
        super().__init__(message)
        self.silent = silent


@dataclass(frozen=True)
class Life:
    """sizes: of the frames' payloads, in turn. pages: how many bytes of a file the disk writes at once."""

    name: str
    script: Callable[[Scribe], None]
    segment_bytes_max: int
    allocate_bytes: int
    sizes: tuple[int, ...]
    pages: tuple[int, ...] = (512,)

    @functools.cached_property
    def settings(self) -> JournalSettings:
        return JournalSettings(
            segment_bytes_max=self.segment_bytes_max,
            allocate_bytes=self.allocate_bytes,
            checkpoint_reserve_bytes=1000,
        )

    def payload(self, number: int) -> bytes:
        return _payload(number, self.sizes[number % len(self.sizes)])

    def payloads(self, count: int) -> list[bytes]:
        return [self.payload(number) for number in range(count)]

    def sequence(self, frames: int) -> int:
        """What follows so many frames."""
        return _sequence(frames)


@functools.cache
def _sequence(frames: int) -> int:
    return 1 + sum(events(number) for number in range(frames))


def events(number: int) -> int:
    return 1 + number % 4


@functools.cache
def _payload(number: int, size: int) -> bytes:
    """Different for each frame, and with the magic of a frame inside, which no reader may fall for."""
    text = f"frame {number} RMJF ".encode()
    return (text + random.Random(number).randbytes(max(0, size - len(text))))[:size]


class Scribe:
    """Lives a life, and tells the recording what its users know."""

    def __init__(self, life: Life, disk: RecordingDisk) -> None:
        self.life = life
        self.disk = disk
        self.frames = 0
        self._writer: Writer | None = None

    @property
    def writer(self) -> Writer:
        if self._writer is None:
            raise Misbehaved(f"the life {self.life.name} writes before it starts")
        return self._writer

    def start(self) -> None:
        told = self.disk.promises[-1]
        recovery = recover(self.disk, self.life.settings)
        self.disk.tell(Promise(told.tried, told.kept, recovery.epoch))
        shown = brought_back(self.life, recovery, told)
        self._writer = recovery.open_writer(5000)
        self.frames = shown
        self.disk.tell(Promise(shown, shown, recovery.epoch))

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            number = self.frames
            self.frames += 1
            told = self.disk.promises[-1]
            self.disk.tell(Promise(self.frames, told.kept, told.epoch))
            self.writer.append(self.life.payload(number), events(number), 1000 + number)

    def sync(self) -> None:
        self.writer.sync()
        self._told_kept()

    def sync_beside_append(self) -> None:
        """Another frame is written while the sync runs: it carries an old mark, and is not promised."""
        kept = self.frames
        self.disk.beside_sync = self.append
        self.writer.sync()
        self.disk.tell(Promise(self.frames, kept, self.writer.epoch))

    def publish(self, count: int = 1) -> None:
        self.append(count)
        self.sync()

    def checkpoint(self) -> None:
        self.sync()
        write_checkpoint(self.disk, self.writer.synced, self._chunks(), 7000, epoch=self.writer.epoch)

    def archive(self) -> None:
        archive_behind(self.disk, self.writer.synced)

    def drop_archived(self) -> None:
        drop_archived(self.disk, before_ns=1000 + self.frames)

    def stop(self) -> None:
        self.writer.close()
        self._told_kept()

    def kill(self) -> None:
        """The process is gone; what it wrote and did not sync stays unsynced."""
        self.disk.locked = False
        self._writer = None

    def _chunks(self) -> Iterator[bytes]:
        return iter(self.life.payloads(self.frames))

    def _told_kept(self) -> None:
        self.disk.tell(Promise(self.frames, self.frames, self.writer.epoch))


def brought_back(life: Life, recovery: Recovery, promise: Promise) -> int:
    """How many frames are back; raises `Misbehaved` when they are not those that were promised."""
    if recovery.epoch <= promise.epoch:
        raise Misbehaved(f"epoch {recovery.epoch} is given out again, after {promise.epoch}")
    shown = 0
    for payload in _everything(recovery):
        if shown >= promise.tried:
            raise Misbehaved(f"a frame came back behind the {promise.tried} that were ever written")
        if payload != life.payload(shown):
            raise Misbehaved(f"frame {shown} came back changed, or another in its place")
        shown += 1
    if shown < promise.kept:
        raise Misbehaved(f"{promise.kept} frames were synced, {shown} are back")
    if recovery.next_sequence != life.sequence(shown):
        raise Misbehaved(f"after {shown} frames the sequence is {recovery.next_sequence}")
    return shown


def _everything(recovery: Recovery) -> Iterator[bytes]:
    yield from recovery.chunks()
    for frame in recovery.frames():
        yield frame.payload


def recorded(life: Life) -> RecordingDisk:
    """The disk after the life, with every call."""
    disk = RecordingDisk({}, NOTHING)
    life.script(Scribe(life, disk))
    return disk


def recovery_recorded(life: Life, disk: PlainDisk, promise: Promise) -> RecordingDisk:
    """A recovery of this directory, call by call, and one synced frame behind it."""
    recording = RecordingDisk(disk.files, promise, disk.salt())
    scribe = Scribe(life, recording)
    scribe.start()
    scribe.publish()
    return recording


# The lives


def _publish(scribe: Scribe) -> None:
    scribe.start()
    for _ in range(8):
        scribe.publish()
    scribe.append()


def _group_commit(scribe: Scribe) -> None:
    scribe.start()
    for count in (3, 5, 1, 6, 4):
        scribe.publish(count)
    scribe.append(6)


def _rotation(scribe: Scribe) -> None:
    scribe.start()
    for count in (2, 5, 3, 4, 5):
        scribe.publish(count)
    scribe.append(5)


def _checkpoint(scribe: Scribe) -> None:
    scribe.start()
    for count in (3, 4):
        scribe.publish(count)
        scribe.append()
        scribe.checkpoint()
    scribe.append(2)
    scribe.checkpoint()
    scribe.append(2)


def _archive(scribe: Scribe) -> None:
    scribe.start()
    for count in (4, 4, 4):
        scribe.publish(count)
        scribe.checkpoint()
        scribe.archive()
    scribe.append(2)
    scribe.drop_archived()
    scribe.publish(2)


def _restart(scribe: Scribe) -> None:
    scribe.start()
    scribe.publish(3)
    scribe.append(2)
    scribe.stop()
    scribe.start()
    scribe.publish(2)
    scribe.append()
    scribe.checkpoint()
    scribe.stop()
    scribe.start()
    scribe.append(2)


def _killed(scribe: Scribe) -> None:
    scribe.start()
    scribe.publish(2)
    scribe.append(4)
    scribe.kill()
    scribe.start()
    scribe.append(3)
    scribe.kill()
    scribe.start()
    scribe.publish(1)
    scribe.append(3)


def _beside(scribe: Scribe) -> None:
    scribe.start()
    for count in (2, 1, 3):
        scribe.append(count)
        scribe.sync_beside_append()
    scribe.append()


LIVES = (
    Life("publish", _publish, 100_000, 4096, (150, 400, 90, 700)),
    Life("group-commit", _group_commit, 100_000, 4096, (200, 350, 80, 420, 600)),
    Life("no-allocation", _group_commit, 100_000, 0, (130, 90, 310, 20, 260)),
    Life("append-beside-sync", _beside, 100_000, 2048, (160, 330, 70, 240)),
    Life("large-frames", _group_commit, 100_000, 16_384, (900, 1700, 30, 2600, 1300), (512, 4096)),
    Life("rotation", _rotation, 1500, 700, (120, 300, 60, 210)),
    Life("checkpoint", _checkpoint, 900, 400, (90, 200, 40)),
    Life("archive", _archive, 700, 300, (70, 160, 30, 110)),
    Life("restart", _restart, 1200, 500, (110, 240, 50)),
    Life("killed", _killed, 2000, 800, (140, 60, 330, 210)),
)
