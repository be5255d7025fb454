"""The audit log: one line for each write, chained, recovered after a crash, going on across files."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from relaymesh.server.security import audit as audit_module
from relaymesh.server.security.audit import AuditEvent, AuditFile, AuditLog
from relaymesh.server.security.chain import GENESIS, Line, audit_files, read_lines, redacted
from relaymesh.server.security.token import mint
from tests.waiting import until_async


def opened(folder: Path, *, bytes_max: int = 1_000_000, files_max: int = 100) -> AuditFile:
    return AuditFile(folder, bytes_max=bytes_max, files_max=files_max, now_ms=lambda: 1)


def events(count: int, event: str = "web.write") -> list[AuditEvent]:
    return [AuditEvent(event=event, at=number, path=f"/{number}") for number in range(count)]


def faults(folder: Path) -> list[Line]:
    return [line for line in read_lines(folder) if line.fault]


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [line.fields for line in read_lines(folder)]


def test_lines_are_chained_from_the_first(tmp_path: Path) -> None:
    opened(tmp_path).write(events(3))
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_bytes().splitlines()]
    assert lines[0]["prev"] == GENESIS
    assert [line["prev"] for line in lines[1:]] == [line["hash"] for line in lines[:-1]]
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert faults(tmp_path) == []
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    file = opened(tmp_path)
    file.write(events(3))
    path = tmp_path / "audit.jsonl"
    sound = path.read_bytes()
    for place in range(len(sound) - 1):  # the last line end is what makes the last line one
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 0x01]) + sound[place + 1 :])
        assert faults(tmp_path), f"byte {place} was changed unseen"


@pytest.mark.parametrize(
    ("change", "file_line"),
    [
        (lambda lines: [*lines[:1], *lines[2:]], 2),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 2),
        (lambda lines: [*lines[:2], lines[1], *lines[2:]], 3),
        (lambda lines: [*lines[:3], b"{}\n", *lines[3:]], 4),
        (lambda lines: [*lines[:3], b"nonsense\n", *lines[3:]], 4),
        (lambda lines: [b'{"seq": 1}\n', *lines], 1),
    ],
)
def test_lines_taken_out_put_in_or_moved_are_named(tmp_path: Path, change: Any, file_line: int) -> None:
    opened(tmp_path).write(events(5))
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    [broken] = faults(tmp_path)
    assert (broken.file, broken.number) == ("audit.jsonl", file_line)


def test_a_torn_last_line_is_cut_off_and_said(tmp_path: Path) -> None:
    opened(tmp_path).write(events(2))
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b'{"at":3,"event":"web.wr')
    assert faults(tmp_path) == []  # it may still be being written
    opened(tmp_path).write(events(1))
    assert faults(tmp_path) == []
    assert [line["event"] for line in lines_of(tmp_path)] == [
        "web.write",
        "web.write",
        "audit.recovered",
        "web.write",
    ]


@pytest.mark.parametrize("kept", range(0, 400, 7))
def test_a_crash_at_any_byte_leaves_a_sound_log(tmp_path: Path, kept: int) -> None:
    opened(tmp_path).write(events(2))
    path = tmp_path / "audit.jsonl"
    os.truncate(path, min(kept, path.stat().st_size))
    opened(tmp_path).write(events(1))
    assert faults(tmp_path) == []
    assert lines_of(tmp_path)[-1]["event"] == "web.write"


def test_the_chain_goes_on_after_a_restart_and_across_files(tmp_path: Path) -> None:
    for _ in range(5):
        file = opened(tmp_path, bytes_max=600)
        for event in events(5):
            file.write([event])
        file.close()
    assert len(audit_files(tmp_path)) > 5
    assert faults(tmp_path) == []
    assert [line["seq"] for line in lines_of(tmp_path)] == list(range(1, 26))


def test_a_restart_right_after_a_rotation_finds_the_chain(tmp_path: Path) -> None:
    opened(tmp_path).write(events(3))
    (tmp_path / "audit.jsonl").rename(tmp_path / "audit.000001.jsonl")
    opened(tmp_path).write(events(1))
    assert faults(tmp_path) == []
    assert len(lines_of(tmp_path)) == 4


def test_a_file_that_is_missing_in_the_middle_is_found(tmp_path: Path) -> None:
    file = opened(tmp_path, bytes_max=300)
    for event in events(9):
        file.write([event])
    audit_files(tmp_path)[3].unlink()
    [broken] = faults(tmp_path)
    assert "missing" in broken.fault


def test_old_files_are_let_go_and_the_rest_still_verifies(tmp_path: Path) -> None:
    file = opened(tmp_path, bytes_max=300, files_max=3)
    for event in events(20):
        file.write([event])
    assert len(audit_files(tmp_path)) == 3
    assert faults(tmp_path) == []
    assert lines_of(tmp_path)[0]["seq"] > 1


def test_a_last_line_that_is_no_entry_begins_a_new_chain_and_stays_as_evidence(tmp_path: Path) -> None:
    opened(tmp_path).write(events(2))
    with (tmp_path / "audit.jsonl").open("ab") as file:
        file.write(b"overwritten by somebody\n")
    opened(tmp_path).write(events(1))
    [broken] = faults(tmp_path)
    assert (broken.file, broken.number) == ("audit.000001.jsonl", 3)
    first = json.loads((tmp_path / "audit.jsonl").read_bytes().splitlines()[0])
    assert first["event"] == "audit.restarted"


def test_a_write_that_fails_half_way_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path)
    file.write(events(1))
    real = os.write

    def short(descriptor: int, data: Any) -> int:
        if len(data) > 40:
            return real(descriptor, bytes(data[:40]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", short)
    with pytest.raises(OSError, match="space"):
        file.write(events(1))
    monkeypatch.undo()
    file.write(events(1))
    assert faults(tmp_path) == []
    assert len(lines_of(tmp_path)) == 2


def test_what_could_not_be_written_is_counted_and_said_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> AuditLog:
        log = AuditLog(tmp_path)
        log.append(events(1)[0])
        await written(log, 2)

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        for event in events(3):
            log.append(event)
        await until_async(lambda: log.lost == 3)
        monkeypatch.undo()
        log.append(events(1)[0])
        await log.close()
        return log

    log = asyncio.run(story())
    assert log.lost == 3
    gaps = [line for line in lines_of(tmp_path) if line["event"] == "audit.gap"]
    assert [gap["detail"] for gap in gaps] == ["3 entries before this one could not be written"]
    assert faults(tmp_path) == []


async def written(log: AuditLog, count: int) -> None:
    await until_async(lambda: log.written >= count)


def test_appends_gather_into_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0
    real = os.fsync

    def counted(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        real(descriptor)

    async def story() -> None:
        log = AuditLog(tmp_path)
        log.append(events(1)[0])
        await written(log, 2)
        monkeypatch.setattr(os, "fsync", counted)
        for event in events(500):
            log.append(event)
        await written(log, 502)
        monkeypatch.undo()
        await log.close()

    asyncio.run(story())
    assert syncs <= 3
    assert audit_module.SYNC_SECONDS <= 0.1
    assert [line["event"] for line in lines_of(tmp_path)][-1] == "server.stopped"


def test_a_backlog_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "BACKLOG_MAX", 10)

    async def story() -> AuditLog:
        log = AuditLog(tmp_path)
        for event in events(50):
            log.append(event)
        await log.close()
        return log

    log = asyncio.run(story())
    assert log.lost >= 39
    assert log.written + log.lost >= 50


def test_a_log_that_was_never_used_closes_without_a_file(tmp_path: Path) -> None:
    async def story() -> None:
        await AuditLog(tmp_path / "server").close()

    asyncio.run(story())
    assert not (tmp_path / "server").exists()


def test_no_text_from_outside_brings_a_token_or_a_control_character_along() -> None:
    _, text = mint()
    secret = text.split("_", 2)[2]
    for around in (text, f"x{text}y", f"/a/{text}?b", f"Bearer {text}", f"{text} {text}"):
        assert secret not in redacted(around)
    assert text.split("_")[1] in redacted(text)
    assert redacted("a\x1b[2Jb\n") == "a�[2Jb�"
    assert len(redacted("a" * 10_000)) < 400


def test_reading_while_it_is_written_and_rotated_finds_nothing_broken(tmp_path: Path) -> None:
    file = opened(tmp_path, bytes_max=900)
    file.write(events(1))
    for event in events(60):
        reading = read_lines(tmp_path)
        next(reading)
        file.write([event])
        assert [line for line in reading if line.fault] == []
