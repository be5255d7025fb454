"""audit: what the server wrote down, shown and verified from the files alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaymesh.server.security.audit import AuditEvent, AuditFile
from tests.cli.running import Cli


@pytest.fixture
def audited(empty: Cli) -> Cli:
    file = AuditFile(empty.path / "server", bytes_max=900, files_max=100, now_ms=lambda: 0)
    for number in range(12):
        event = "auth.refused" if number % 4 == 0 else "web.write"
        file.write(
            [
                AuditEvent(
                    event=event, at=1_800_000_000_000 + number * 60_000, token=f"t{number % 2}", status=200
                )
            ]
        )
    file.close()
    return empty


def files(cli: Cli) -> list[Path]:
    return sorted((cli.path / "server").glob("audit*.jsonl"))


def test_a_sound_log_verifies_and_tells_its_newest_hash(audited: Cli) -> None:
    ran = audited.json("audit", "verify")
    assert ran.code == 0
    assert (ran.row["sound"], ran.row["lines"], ran.row["first"]) == (True, 12, 1)
    assert len(ran.row["head"]) == 64
    assert audited.json("audit", "verify", "--contains", ran.row["head"]).code == 0


def test_a_changed_line_is_named_and_ends_with_9(audited: Cli) -> None:
    assert len(files(audited)) > 2
    middle = files(audited)[1]
    lines = middle.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"status":200', b'"status":201')
    middle.write_bytes(b"".join(lines))
    ran = audited.json("audit", "verify")
    assert ran.code == 9
    assert (ran.row["file"], ran.row["line"]) == (middle.name, 2)
    assert ran.error["code"] == "CHECK_FAILED"


def test_a_log_that_was_cut_off_does_not_contain_what_was_noted(audited: Cli) -> None:
    noted = audited.json("audit", "verify").row["head"]
    newest = files(audited)[-1]
    newest.write_bytes(b"".join(newest.read_bytes().splitlines(keepends=True)[:-1]))
    assert audited.json("audit", "verify").code == 0
    assert audited.json("audit", "verify", "--contains", noted).code == 9


def test_the_last_lines_are_listed_the_newest_last(audited: Cli) -> None:
    rows = audited.json("audit", "list", "--limit", "3").rows
    assert [row["seq"] for row in rows] == [10, 11, 12]
    assert rows[-1]["at"].startswith("2027-01-15")
    assert "web.write" in audited("audit", "list").out


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("--event", "auth.refused"), 3),
        (("--token", "t1"), 6),
        (("--since", "2027-01-15T08:10"), 2),
        (("--event", "nothing"), 0),
    ],
)
def test_the_list_can_be_narrowed(audited: Cli, words: tuple[str, ...], count: int) -> None:
    assert len(audited.json("audit", "list", *words).rows) == count


def test_without_a_log_there_is_nothing_to_verify(empty: Cli) -> None:
    assert empty.json("audit", "verify").code == 4
    assert empty.json("audit", "list").code == 4
