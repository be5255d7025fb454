"""Where things are printed, how wide, and in which colour."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from relaymesh import __version__
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.main import main
from relaymesh.cli.moments import bytes_text, parse_since, span_text
from relaymesh.cli.table import Column, short_address, short_id, table_lines
from relaymesh.node.rng import system_rng
from relaymesh.printable import printable
from relaymesh.wire.ids import IdMint
from tests.cli.running import Cli, on_terminal, piped

LONG = "01a1e133-1529-73fa-8f8d-3d751d92e1eb"


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"relaymesh {__version__}\n"


@pytest.mark.parametrize(
    "words", [[], ["dlq"], ["journal"], ["topic"], ["store"], ["--help"], ["send", "-h"]]
)
def test_a_group_alone_answers_with_its_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith("Usage: relaymesh")
    assert err == ""


def test_the_directory_comes_from_the_option_or_the_environment(
    cli: Cli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(cli.path)
    monkeypatch.setenv("HOME", str(cli.path.parent))
    assert main(["inbox", "coder"]) == 4
    assert ".relaymesh" in capsys.readouterr().err
    assert main(["--dir", path, "inbox", "coder"]) == 0
    monkeypatch.setenv("RELAYMESH_HOME", path)
    assert main(["inbox", "coder"]) == 0
    capsys.readouterr()
    assert main(["--json", "inbox", "coder"]) == 0
    assert capsys.readouterr().out.startswith("{")


def test_a_command_on_files_refuses_a_node_in_plain_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RELAYMESH_URL", "http://127.0.0.1:9")
    assert main(["journal", "verify"]) == 2
    assert "run it where its data directory is" in capsys.readouterr().err


def test_a_node_that_is_not_there_is_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--url", "http://127.0.0.1:9"]) == 5
    assert "relaymesh serve" in capsys.readouterr().err


def test_a_directory_and_a_node_are_not_named_together(cli: Cli) -> None:
    assert cli("status", "--url", "http://127.0.0.1:9").code == 2
    assert main(["status", "--url", "mesh.example.org"]) == 2


def test_a_terminal_that_has_no_check_mark_gets_something_else(cli: Cli) -> None:
    ran = piped("doctor", "--dir", str(cli.path), PYTHONIOENCODING="ascii")
    assert ran.code == 0
    assert "? ok    journal" in ran.out


@pytest.mark.parametrize(
    "words",
    [
        ["inbox", "coder"], ["inbox", "order.*:audit"], ["topic", "list"], ["dlq", "list"],
        ["journal", "cat"], ["doctor"], ["dlq", "redrive", "--all", "--dry-run"],
        ["inbox", "coder", "--take", "1"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_tables_fit_80_columns(cli: Cli, words: list[str]) -> None:
    cli("send", "coder", "a rather long text that does not fit into the column " * 3, "--from", "planner")
    code, seen = on_terminal(*words, "--dir", str(cli.path), NO_COLOR="1")
    assert code == 0
    lines = [line for line in seen.splitlines() if str(cli.path) not in line]
    assert [line for line in lines if len(line) > 80] == []


def test_colour_is_for_terminals_and_can_be_turned_off(cli: Cli) -> None:
    words = ["inbox", "coder", "--dir", str(cli.path)]
    assert "\x1b[1m" in on_terminal(*words)[1]
    assert "\x1b" not in on_terminal(*words, NO_COLOR="1")[1]
    assert "\x1b" not in cli("inbox", "coder").out


def test_a_pipe_gets_whole_ids(cli: Cli) -> None:
    whole = cli.json("inbox", "coder").rows[1]["id"]
    assert whole in cli("inbox", "coder").out
    code, seen = on_terminal("inbox", "coder", "--dir", str(cli.path))
    assert code == 0
    assert whole not in seen
    assert short_id(whole) in seen


# -- the parts


def lines(width: int | None, *rows: dict[str, object]) -> list[str]:
    columns = [Column("id", "id"), Column("n", "number"), Column("text", "text")]
    return list(table_lines(columns, rows, width))


def test_a_table_is_as_wide_as_it_needs_to_be() -> None:
    assert lines(None, {"id": "a", "n": 1, "text": "x" * 100}, {"id": "bb", "n": 22, "text": None}) == [
        "ID   N  TEXT",
        "a    1  " + "x" * 100,
        "bb  22  -",
    ]


def test_a_narrow_table_shortens_ids_first_and_then_cuts_text() -> None:
    assert lines(26, {"id": LONG, "n": 1, "text": "hello"}) == [
        "ID                N  TEXT",
        "…1529-73fa-8f8d…  1  hello",
    ]
    assert lines(30, {"id": LONG, "n": 1, "text": "hello and more"})[1] == "…1529-73fa-8f8d…  1  hello an…"


def test_an_id_is_shown_by_what_tells_it_apart() -> None:
    assert short_id("bump-1.4") == "bump-1.4"
    assert short_id("invoice-2026-03-01-number-17") == "invoice…umber-17"
    together = IdMint(system_rng()).mint(1_790_000_000_000, 500)
    assert len({short_id(id) for id in together}) == 500


def test_wide_characters_keep_the_columns_straight() -> None:
    first, second = lines(None, {"id": "信箱", "n": 1, "text": "x"}, {"id": "mail", "n": 1, "text": "x"})[1:]
    assert (first, second) == ("信箱  1  x", "mail  1  x")


def test_a_table_reads_a_stream_as_it_goes() -> None:
    endless = ({"id": str(number), "n": number} for number in count(1))
    drawn = table_lines([Column("id"), Column("n", "number")], endless, None)
    assert [next(drawn) for _ in range(500)][-1].split() == ["499", "499"]


def test_what_cannot_be_printed_is_escaped() -> None:
    assert printable("a\x1b[2Jb\n") == "a\\x1b[2Jb\\n"
    assert printable("信箱") == "信箱"


def test_addresses_are_short_in_the_default_namespace_only() -> None:
    assert short_address("default/coder") == "coder"
    assert short_address("acme/coder") == "acme/coder"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.85, "850ms"), (12.9, "12s"), (185, "3m"), (7300, "2h"), (500_000, "5d"), (-3, "0s")],
)
def test_spans_are_told_in_their_largest_unit(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_sizes_are_told_in_powers_of_1000() -> None:
    assert [bytes_text(n) for n in (5, 1500, 2_500_000, 7e9, 3e12)] == [
        "5 B", "1.5 KB", "2.5 MB", "7.0 GB", "3.0 TB",
    ]  # fmt: skip


def test_since_takes_spans_and_times() -> None:
    ago = datetime.now(UTC) - parse_since("2h")
    assert abs(ago - timedelta(hours=2)) < timedelta(seconds=5)
    assert parse_since("2026-03-01T12:00") == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert parse_since("2026-03-01T12:00+02:00").utcoffset() == timedelta(hours=2)
    for bad in ("", "soon", "9" * 20 + "d", "12"):
        with pytest.raises(UsageFailed):
            parse_since(bad)
