"""Every bit of a 64 KiB journal, turned one at a time: what a start must answer, and what it does.

The expected verdict is read off the undamaged bytes with the offsets of docs/formats/journal.md alone; the
answer comes from the real recovery. A refusal must name segment and offset and change nothing; a torn tail
must be warned of and keep every frame before it; anything else must bring every frame back.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from relaymesh.errors import JournalDamaged, MeshError
from relaymesh.journal import recover
from relaymesh.testing.enumeration.lives import Life, Misbehaved, Scribe, brought_back, recorded
from relaymesh.testing.enumeration.plain import PlainDisk
from relaymesh.testing.enumeration.recording import Promise

__all__ = ["JOURNAL_BYTES", "Flips", "Journal", "flip_bits", "journal_of_64_kib"]

JOURNAL_BYTES = 65_536
REFUSED, TORN, WHOLE = "refused", "torn tail", "whole"
WRITTEN_TO_EVERY = 4096
"""After so many starts that succeed, one is also written to and started again."""


class Verdict(NamedTuple):
    """word: refused, torn tail or whole. segment, offset: where. frames: how many are back."""

    word: str
    segment: str = ""
    offset: int = 0
    frames: int = 0


class Laid(NamedTuple):
    """One frame by its place: what the bytes say, read without the product's code."""

    start: int
    end: int
    mark: int


@dataclass(frozen=True)
class Journal:
    """A directory, what was promised about it, and the verdict on each byte of each segment."""

    files: dict[str, bytes]
    promise: Promise
    verdicts: dict[str, list[Verdict]]

    @property
    def bits(self) -> int:
        return 8 * sum(len(self.files[name]) for name in self.verdicts)


@dataclass
class Flips:
    """silent: starts that accepted changed or missing data without a word. unexpected: any other surprise.

    known_limit: synced frames dropped as a torn tail because the mark file is gone; warned of each time.
    """

    verdicts: Counter[str] = field(default_factory=Counter)
    silent: int = 0
    unexpected: int = 0
    known_limit: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Flips) -> None:
        self.verdicts += other.verdicts
        self.silent += other.silent
        self.unexpected += other.unexpected
        self.known_limit += other.known_limit
        self.failures += other.failures


def _script(scribe: Scribe) -> None:
    """Segments sealed by rotation and by a restart that took unsynced frames over, and the live one."""
    scribe.start()
    for count in (1, 3, 2, 2):
        scribe.publish(count)
    scribe.append(2)
    scribe.kill()
    scribe.start()
    for count in (2, 1, 3, 1, 2, 1):
        scribe.publish(count)
    scribe.append(2)
    scribe.sync_beside_append()


LIFE = Life("64-kib", _script, 25_000, 2000, (1500, 4200, 700, 3800, 60, 5300))


def journal_of_64_kib(*, mark: bool) -> Journal:
    """The segments hold 65,536 bytes together: the live one is allocated ahead up to there."""
    disk = recorded(LIFE)
    files = dict(disk.files)
    segments = sorted(name for name in files if name.endswith(".rmj"))
    missing = JOURNAL_BYTES - sum(len(files[name]) for name in segments)
    if missing < 0:
        raise Misbehaved(f"the journal is {-missing} bytes too large")
    files[segments[-1]] += bytes(missing)
    marked = struct.unpack_from("<Q", files["mark"], 24)[0]
    if not mark:
        del files["mark"]
    promise = disk.promises[-1]
    return Journal(files, promise, _expected(files, segments, promise.tried, marked if mark else 0))


def _expected(
    files: dict[str, bytes], segments: list[str], total: int, marked: int
) -> dict[str, list[Verdict]]:
    """docs/formats/journal.md, "Bad bytes": the table, row by row."""
    verdicts: dict[str, list[Verdict]] = {}
    before = 0
    for name, successor in zip(segments, [*segments[1:], None], strict=False):
        header, *frames = _laid(files[name])
        ours = [Verdict(WHOLE, frames=total)] * len(files[name])
        ours[: header.end] = [Verdict(REFUSED, name, 0)] * header.end
        if successor is not None:
            seal = struct.unpack_from("<Q", files[successor], 64 + 24)[0]
            frames = [frame for frame in frames if frame.end <= seal]
        for index, frame in enumerate(frames):
            marks = [header.mark, marked, *(later.mark for later in frames[index + 1 :])]
            if successor is not None or max(marks) > frame.start:
                verdict = Verdict(REFUSED, name, frame.start)
            else:
                verdict = Verdict(TORN, name, frame.start, before + index)
            ours[frame.start : frame.end] = [verdict] * (frame.end - frame.start)
        before += len(frames)
        if successor is None:
            end = frames[-1].end
            ours[end:] = [Verdict(TORN, name, end, total)] * (len(ours) - end)
        verdicts[name] = ours
    return verdicts


def _laid(data: bytes) -> list[Laid]:
    frames: list[Laid] = []
    at = 0
    while data[at : at + 4] == b"RMJF":
        length, _events, _first, mark = struct.unpack_from("<IIQQ", data, at + 24)
        frames.append(Laid(at, at + 64 + length, mark))
        at += 64 + length
    return frames


class _Warned(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def bits_of(journal: Journal, start: int, stop: int | None, step: int) -> Iterator[tuple[str, int, int]]:
    """Segment, byte and bit of every `step`-th bit."""
    first = 0
    for name, verdicts in journal.verdicts.items():
        size = 8 * len(verdicts)
        end = min(first + size, journal.bits if stop is None else stop)
        begin = start if start >= first else first + (start - first) % step
        for bit in range(begin, end, step):
            yield name, (bit - first) // 8, (bit - first) % 8
        first += size


def flip_bits(journal: Journal, *, start: int = 0, stop: int | None = None, step: int = 1) -> Flips:
    """Turn these bits, one at a time, and start on each."""
    warned = _Warned()
    log = logging.getLogger("relaymesh.journal")
    propagates, level = log.propagate, log.level
    log.addHandler(warned)
    log.propagate = False
    try:
        return _flip_all(journal, bits_of(journal, start, stop, step), warned)
    finally:
        log.removeHandler(warned)
        log.propagate = propagates
        log.setLevel(level)


def _flip_all(journal: Journal, bits: Iterable[tuple[str, int, int]], warned: _Warned) -> Flips:
    flips = Flips()
    succeeded = 0
    for name, at, bit in bits:
        content = journal.files[name]
        turned = content[:at] + bytes((content[at] ^ 1 << bit,)) + content[at + 1 :]
        files = {**journal.files, name: turned}
        expected = journal.verdicts[name][at]
        warned.lines.clear()
        disk = PlainDisk(files, at)
        answer = _start(journal, disk, files)
        flips.verdicts[answer.word] += 1
        torn = [line for line in warned.lines if "torn tail" in line]
        if answer != expected or len(torn) != (answer.word == TORN):
            told = f"bit {bit} of byte {at} of {name}: {answer}, not {expected}"
            _count_surprise(flips, journal, answer, told)
        elif answer.word != REFUSED:
            flips.known_limit += answer.frames < journal.promise.kept
            succeeded += 1
            if succeeded % WRITTEN_TO_EVERY == 0:
                _go_on(files, answer.frames)
    return flips


def _count_surprise(flips: Flips, journal: Journal, answer: Verdict, told: str) -> None:
    missing = answer.word == WHOLE and answer.frames < journal.promise.tried
    if missing or answer.word == "changed":
        flips.silent += 1
    else:
        flips.unexpected += 1
    flips.failures.append(told)


def _start(journal: Journal, disk: PlainDisk, files: dict[str, bytes]) -> Verdict:
    try:
        recovery = recover(disk, LIFE.settings)
        frames = brought_back(LIFE, recovery, journal.promise._replace(kept=0))
    except JournalDamaged as error:
        for name in journal.verdicts:
            if disk.files[name] is not files[name]:
                return Verdict("changed by a refusal", name)
        where, _, offset = error.message.partition(" is damaged at offset ")
        return Verdict(REFUSED, where, int(offset.partition(":")[0] or -1))
    except Misbehaved:
        return Verdict("changed")
    except MeshError as error:
        return Verdict(type(error).__name__)
    finally:
        disk.locked = False
    if recovery.torn is None:
        return Verdict(WHOLE, frames=frames)
    return Verdict(TORN, recovery.torn.segment, recovery.torn.offset, frames)


def _go_on(files: dict[str, bytes], frames: int) -> None:
    """A start that dropped a torn tail leaves a journal that another start takes as it is."""
    disk = PlainDisk(files)
    recovery = recover(disk, LIFE.settings)
    recovery.open_writer(5000).close()
    again = recover(disk, LIFE.settings)
    shown = brought_back(LIFE, again, Promise(frames, frames, recovery.epoch))
    if again.torn is not None or shown != frames:
        raise Misbehaved(f"{frames} frames were shown at first, then {shown}, torn: {again.torn}")
