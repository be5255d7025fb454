"""journal and store: reading what happened, and making the tables anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaymesh.journal import read_frames
from relaymesh.journal.events import EventRows
from relaymesh.kernel.records import AnyRecord, Returned
from relaymesh.node.disk import RealDisk
from relaymesh.sdk.mesh import Mesh
from relaymesh.wire.operations import OPERATIONS, RETURNS
from tests.cli.running import Cli


def damage(path: Path) -> None:
    """Flip a bit of acknowledged data."""
    first = min((path / "journal").glob("*.rmj"))
    data = bytearray(first.read_bytes())
    data[200] ^= 1
    first.write_bytes(data)


def test_cat_shows_one_row_per_event_under_the_operations_names(cli: Cli) -> None:
    rows = cli.json("journal", "cat").rows
    assert [row["sequence"] for row in rows] == list(range(1, len(rows) + 1))
    operations = [row["operation"] for row in rows]
    assert operations[0] == "START"
    assert operations.count("APPEND") == 5
    assert operations.count("DEAD_LETTER") == 3
    assert operations.count("PUBLISH") == 1
    dead = next(row for row in rows if row["operation"] == "DEAD_LETTER")
    assert (dead["message_id"], dead["mailbox"], dead["retry_count"]) == ("dead-0", "default/coder", 0)
    assert (dead["code"], dead["reason"]) == ("bad_patch", "not_retryable")
    assert "message" not in dead


def test_cat_counts_retries(empty: Cli) -> None:
    with Mesh(empty.path) as mesh:
        coder = mesh.agent("coder", backoff_ms_base=1, backoff_jitter=0.0)
        mesh.agent("planner").send("coder", "x", id="m")
        coder.receive(timeout=5).nack("once")
        coder.receive(timeout=5).nack("twice")
        coder.receive(timeout=5).ack()
    told = [
        (row["operation"], row["retry_count"])
        for row in empty.json("journal", "cat").rows
        if row["message_id"] == "m"
    ]
    assert told == [
        ("APPEND", 0), ("GRANT", 0), ("NACK", 0), ("GRANT", 1), ("NACK", 1), ("GRANT", 2), ("ACK", 2),
    ]  # fmt: skip


def test_cat_tells_of_a_purge_which_message_it_was(cli: Cli) -> None:
    cli("dlq", "purge", "dead-1", "--reason", "test", "--yes")
    purged = [row for row in cli.json("journal", "cat").rows if row["operation"] == "PURGE"]
    assert [row["message_id"] for row in purged] == ["dead-1"]


def test_cat_begins_and_ends_where_it_is_told(cli: Cli) -> None:
    rows = cli.json("journal", "cat", "--from", "7", "--limit", "2").rows
    assert [row["sequence"] for row in rows] == [7, 8]
    assert "no events" in cli("journal", "cat", "--from", "100000").err


def test_cat_with_full_has_the_message(cli: Cli) -> None:
    row = next(r for r in cli.json("journal", "cat", "--full").rows if r["message_id"] == "bump-1")
    assert row["message"]["content"] == {"do": "bump version"}
    assert '"content":{"do":"bump version"}' in cli("journal", "cat", "--full").out


def test_cat_for_people_is_a_table(cli: Cli) -> None:
    header, *lines = cli("journal", "cat").out.splitlines()
    assert header.split() == ["SEQUENCE", "TIMESTAMP", "OPERATION", "MAILBOX", "RETRY", "MESSAGE_ID"]
    assert len(lines) == len(cli.json("journal", "cat").rows)


def test_every_record_has_an_operation() -> None:
    kinds = set(AnyRecord.__args__) - {Returned}
    assert set(OPERATIONS) == kinds
    names = [*OPERATIONS.values(), *RETURNS.values()]
    assert len(set(names)) == len(names)


def test_ids_are_remembered_for_a_bounded_number_of_messages(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaymesh.journal.events.REMEMBERED_MAX", 1)
    rows = list(EventRows().rows(read_frames(RealDisk(cli.path))))
    assert rows[-1]["sequence"] == len(rows)


def test_verify_reports_a_journal_that_reads_back(cli: Cli) -> None:
    report = cli.json("journal", "verify")
    assert report.code == 0
    assert (report.row["result"], report.row["damage"], report.row["torn_tail"]) == ("ok", [], None)
    shown = cli("journal", "verify")
    assert [line.split()[0] for line in shown.out.splitlines()] == list(report.row)


def test_verify_fails_on_damage_and_names_the_place(cli: Cli) -> None:
    damage(cli.path)
    ran = cli.json("journal", "verify")
    assert ran.code == 9
    assert ran.row["result"] == "damaged"
    assert ran.row["damage"][0]["segment"].startswith("journal/")
    assert ran.error["code"] == "CHECK_FAILED"
    shown = cli("journal", "verify")
    assert "damaged" in shown.out
    assert len(shown.err.splitlines()) == 1


@pytest.mark.parametrize("words", [["journal", "cat"], ["inbox", "coder"], ["send", "coder", "x"]])
def test_a_damaged_journal_is_an_error_and_not_a_traceback(cli: Cli, words: list[str]) -> None:
    damage(cli.path)
    ran = cli.json(*words)
    assert (ran.code, ran.error["code"]) == (9, "JOURNAL_DAMAGED")
    assert "journal verify" in ran.error["hint"]


def test_stat_measures_and_extrapolates(cli: Cli) -> None:
    row = cli.json("journal", "stat", "--rate", "1000").row
    assert row["messages"] == row["operations"]["APPEND"] + row["operations"]["PUBLISH"] == 6
    assert row["events"] == sum(row["operations"].values())
    assert row["bytes_per_message"] == pytest.approx(row["bytes"] / 6, abs=0.1)
    assert row["gb_per_day"] == pytest.approx(row["bytes"] / 6 * 1000 * 86400 / 1e9, abs=0.01)
    shown = cli("journal", "stat")
    assert [line.split()[0] for line in shown.out.splitlines()] == list(row)
    assert "100 messages/s" in shown.out


@pytest.mark.parametrize("verb", ["cat", "verify", "stat"])
def test_a_directory_without_a_journal_is_not_found(empty: Cli, verb: str) -> None:
    ran = empty.json("journal", verb)
    assert (ran.code, ran.error["code"]) == (4, "NOT_FOUND")
    assert not empty.path.exists()


def test_looking_works_beside_a_running_process_and_changes_nothing(cli: Cli) -> None:
    with Mesh(cli.path) as mesh:
        mesh.agent("planner").send("coder", "fresh", id="fresh-1")
        files = sorted(path.name for path in (cli.path / "journal").iterdir())
        for words in (
            ["journal", "cat"], ["journal", "verify"], ["journal", "stat"], ["inbox", "coder"],
            ["topic", "list"], ["dlq", "list"], ["dlq", "show", "dead-0"],
        ):  # fmt: skip
            assert cli(*words).code == 0, words
        assert "fresh-1" in cli("inbox", "coder").out
        assert sorted(path.name for path in (cli.path / "journal").iterdir()) == files


def test_looking_starts_from_a_checkpoint(cli: Cli) -> None:
    with Mesh(cli.path) as mesh:
        mesh.checkpoint()
        mesh.agent("planner").send("coder", "behind", id="behind-1")
    assert [row["id"] for row in cli.json("inbox", "coder").rows][-1] == "behind-1"
    checkpoint = next((cli.path / "checkpoints").glob("*.rmc"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    assert [row["id"] for row in cli.json("inbox", "coder").rows][-1] == "behind-1"
    assert checkpoint.exists()


def test_the_store_is_rebuilt_from_the_journal(cli: Cli) -> None:
    store = cli.path / "store.db"
    store.write_bytes(b"this is no database")
    ran = cli.json("store", "rebuild")
    assert ran.code == 0
    assert ran.row["applied"] == len(cli.json("journal", "cat").rows) + 1
    assert store.read_bytes().startswith(b"SQLite format 3")
    assert cli("store", "rebuild").out.splitlines()[0].split(maxsplit=1) == ["store", str(store)]
    assert cli("send", "coder", "still works").code == 0
