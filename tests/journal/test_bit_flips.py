"""Every bit of a small journal is flipped, one at a time, and each start must answer as written here.

| the flipped bit lies in | with the mark file | without it |
|---|---|---|
| a segment's header | DAMAGED at offset 0 | DAMAGED at offset 0 |
| a frame of a sealed segment, below the seal | DAMAGED at that frame | DAMAGED at that frame |
| a sealed segment behind its seal (rewritten elsewhere) | WHOLE: no data there | WHOLE |
| the live segment, a frame that came with its name | DAMAGED at that frame | DAMAGED at that frame |
| the live segment, a synced frame that a later frame's mark covers | DAMAGED at that frame | DAMAGED |
| the live segment, a synced frame that only the mark file covers | DAMAGED at that frame | TORN there |
| the live segment, a frame that was not synced | TORN at that frame | TORN at that frame |
| the live segment, the zeros behind the frames | TORN there, no frame lost | TORN, no frame lost |
| a checkpoint | WHOLE, from the older one or the journal, warned | the same |
| `mark` | WHOLE as without it, warned | (missing) |
| `epoch` | WHOLE, the epoch still new, warned | the same |
| a segment in the archive that the replay does not need | WHOLE; `verify` names it | the same |
| `lock` | WHOLE | WHOLE |

DAMAGED: `JournalDamaged` names segment and offset, and not a byte of the journal changes. TORN: the start
succeeds with every frame before the bit, and one warning names segment, offset and bytes. WHOLE: every frame.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from relaymesh.errors import JournalDamaged
from relaymesh.journal import archive_behind, recover, verify
from relaymesh.testing.disk import MemoryDisk
from tests.journal import stranger
from tests.journal.small import SMALL, Ledger, replay


@dataclass(frozen=True)
class Verdict:
    """What a start answers: the word, where, and how many frames are back."""

    word: str
    where: str = ""
    frames: int = 0


class Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def warnings() -> Iterator[Warnings]:
    handler = Warnings()
    log = logging.getLogger("relaymesh.journal")
    log.addHandler(handler)
    log.propagate = False
    yield handler
    log.removeHandler(handler)
    log.propagate = True


def small_journal() -> tuple[dict[str, bytes], Ledger]:
    """Two starts, several segments, two checkpoints, an archive, synced and unsynced frames at the end."""
    disk, ledger = MemoryDisk(), Ledger()
    writer = ledger.start(disk)
    for frames in (5, 2):
        for _ in range(frames):
            ledger.append(writer)
            ledger.sync(writer)
        ledger.checkpoint(disk, writer)
    archive_behind(disk, writer.synced)
    for _ in range(2):
        ledger.append(writer)
    disk = disk.kill()
    writer = ledger.start(disk)
    for _ in range(2):
        ledger.append(writer)
        ledger.sync(writer)
    ledger.append(writer)
    return disk.files(), ledger


def expected_verdicts(files: dict[str, bytes], total: int, has_mark: bool) -> dict[str, list[Verdict]]:
    """The verdict on each byte of each file, from the bytes alone, as the table above says."""
    names = sorted(name for name in files if name.startswith("journal/"))
    headers = {name: stranger.frames(files[name])[0] for name in names}
    verdicts = {}
    # The frames in the archive come first; they are counted, not read, at a start.
    back = total - sum(len(_counted(files, names, headers, name)) for name in names)
    for name in names:
        ours = [Verdict("WHOLE", frames=total)] * len(files[name])
        header, counted = headers[name], _counted(files, names, headers, name)
        ours[: header.end] = [Verdict("DAMAGED", f"{name} is damaged at offset 0:")] * header.end
        for index, frame in enumerate(counted):
            later_marks = [other.mark for other in counted[index + 1 :]]
            synced = (
                name != names[-1] or header.mark > frame.start or max(later_marks, default=0) > frame.start
            )
            by_mark_file = has_mark and frame.start < _mark_offset(files)
            if synced or by_mark_file:
                verdict = Verdict("DAMAGED", f"{name} is damaged at offset {frame.start}:")
            else:
                verdict = Verdict("TORN", f"{name} has a torn tail at offset {frame.start}:", back)
            ours[frame.start : frame.end] = [verdict] * (frame.end - frame.start)
            back += 1
        if name == names[-1]:
            end = counted[-1].end
            torn = Verdict("TORN", f"{name} has a torn tail at offset {end}:", total)
            ours[end:] = [torn] * (len(ours) - end)
        verdicts[name] = ours
    for name, data in files.items():
        verdicts.setdefault(name, [Verdict("WHOLE", frames=total)] * len(data))
    return verdicts


def _counted(
    files: dict[str, bytes], names: list[str], headers: dict[str, stranger.Found], name: str
) -> list[stranger.Found]:
    """The frames of a segment that lie before its seal."""
    after = names[names.index(name) + 1 :]
    end = stranger.seal(headers[after[0]])[1] if after else len(files[name])
    return [frame for frame in stranger.frames(files[name])[1:] if frame.end <= end]


def _mark_offset(files: dict[str, bytes]) -> int:
    return int.from_bytes(files["mark"][24:32], "little")


def start(files: dict[str, bytes], ledger: Ledger, warnings: Warnings) -> Verdict:
    """Start on these files and say what came of it."""
    warnings.lines.clear()
    disk = MemoryDisk(files)
    try:
        recovery = recover(disk, SMALL)
        state = replay(recovery)
    except JournalDamaged as error:
        after = disk.files()
        assert all(after[name] == data for name, data in files.items() if name.startswith("journal/"))
        assert not disk.locked
        return Verdict("DAMAGED", error.message[: error.message.index(":") + 1])
    assert state == ledger.tried[: len(state)], "a changed frame was accepted"
    assert recovery.epoch > max(ledger.epochs)
    torn = [line[: line.index(":") + 1] for line in warnings.lines if "torn tail" in line]
    assert len(torn) == (recovery.torn is not None)
    return Verdict("TORN" if torn else "WHOLE", "".join(torn), len(state))


@pytest.mark.slow
@pytest.mark.parametrize("has_mark", [True, False], ids=["with mark", "without mark"])
def test_every_flipped_bit_gets_its_verdict(has_mark: bool, warnings: Warnings) -> None:
    files, ledger = small_journal()
    if not has_mark:
        files.pop("mark")
    total = len(ledger.tried)
    assert start(files, ledger, warnings) == Verdict("WHOLE", frames=total)
    seen: set[str] = set()
    for name, verdicts in expected_verdicts(files, total, has_mark).items():
        for at, verdict in enumerate(verdicts):
            for bit in range(8):
                flipped = bytearray(files[name])
                flipped[at] ^= 1 << bit
                answer = start({**files, name: bytes(flipped)}, ledger, warnings)
                assert answer == verdict, f"bit {bit} of byte {at} of {name}"
                if name in ("mark", "epoch") or name.startswith("checkpoints/"):
                    assert _is_newest_or_small(name, files) == bool(warnings.lines)
        seen |= {verdict.word for verdict in verdicts}
    assert seen == {"WHOLE", "TORN", "DAMAGED"}


def _is_newest_or_small(name: str, files: dict[str, bytes]) -> bool:
    """Whether a start reads this file at all: of the checkpoints only the newest, unless it is bad."""
    return not name.startswith("checkpoints/") or name == max(
        f for f in files if f.startswith("checkpoints/")
    )


@pytest.mark.slow
def test_verify_names_every_flipped_bit_that_a_start_need_not_see(warnings: Warnings) -> None:
    files, _ = small_journal()
    assert verify(MemoryDisk(files)).damage == []
    names = [
        name for name in files if name.startswith(("archive/", "checkpoints/")) or name in ("mark", "epoch")
    ]
    assert any(name.startswith("archive/") for name in names)
    for name in names:
        for bit in range(8 * len(files[name])):
            flipped = bytearray(files[name])
            flipped[bit // 8] ^= 1 << bit % 8
            damage = verify(MemoryDisk({**files, name: bytes(flipped)})).damage
            assert [each.segment for each in damage][:1] == [name], f"bit {bit} of {name}"
