"""purge: a preview by default, a removal with --yes and --reason; embedded, served, remote, and of a bus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relaymesh.cli.main import main
from relaymesh.gateways.filebus.directory import make_bus
from relaymesh.node.disk import RealLock
from relaymesh.sdk.mesh import Mesh
from relaymesh.server.address import NodeAddress, server_folder, write_address
from relaymesh.server.security.chain import read_lines
from tests.cli.running import Cli, Ran
from tests.client.serving import ServerThread

NOW = ("--done-older-than", "0s", "--dead-older-than", "0s")
DO = ("--yes", "--reason", "a test")


def files(path: Path) -> dict[str, bytes]:
    """Everything but what SQLite does for itself."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and not each.name.startswith("store.db-")
    }


def audited(path: Path) -> list[dict[str, Any]]:
    lines = list(read_lines(server_folder(path)))
    assert all(not line.fault for line in lines)
    return [line.fields for line in lines if str(line.fields["event"]).startswith("purge")]


@pytest.fixture
def cli(cli: Cli) -> Cli:
    """A mesh in which something is done, too."""
    assert cli("send", "tester", "work", "--from", "planner").code == 0
    assert cli("inbox", "tester", "--take", "1", "--ack").code == 0
    return cli


def waiting(cli: Cli) -> list[str]:
    return [row["id"] for row in cli.json("inbox", "coder").rows]


def test_without_yes_nothing_changes(cli: Cli) -> None:
    before = files(cli.path)
    for words in ((), ("--dry-run",), ("--reason", "only asked")):
        ran = cli.json("purge", *NOW, *words)
        assert ran.code == 0
        *rows, summary = ran.rows
        assert {"messages", "dead_letters"} <= {row["kind"] for row in rows}
        assert summary["dry_run"] is True
        assert summary["purged"] == {}
        assert "--yes --reason" in ran.err
    assert files(cli.path) == before


def test_the_preview_is_a_table_with_count_bytes_and_times(cli: Cli) -> None:
    header, *lines = cli("purge", *NOW).out.splitlines()
    assert header.split() == ["KIND", "MAILBOX", "COUNT", "BYTES", "OLDEST", "NEWEST"]
    [letters] = [line for line in lines if line.startswith("dead_letters")]
    assert letters.split()[1:3] == ["coder", "3"]


def test_nothing_that_old_is_no_error(cli: Cli) -> None:
    ran = cli("purge")
    assert (ran.code, ran.out) == (0, "")
    assert "nothing is that old" in ran.err


def test_with_yes_and_a_reason_it_is_gone_and_audited(cli: Cli) -> None:
    pending = waiting(cli)
    ran = cli.json("purge", *NOW, *DO)
    assert ran.code == 0, ran.err
    summary = ran.rows[-1]
    assert summary["dry_run"] is False
    assert summary["purged"]["dead_letters"] == 3
    assert summary["reason"] == "a test"
    assert cli.json("dlq", "list").rows == []
    assert waiting(cli) == pending != []
    began, done = audited(cli.path)
    assert (began["event"], done["event"]) == ("purge.began", "purge")
    assert "3 dead letters" in done["detail"]
    assert "a test; done older than 0:00:00, dead older than 0:00:00" in done["detail"]
    assert done["label"]
    assert cli("audit", "verify").code == 0
    assert cli.json("purge", *NOW, *DO).rows[-1]["purged"]["messages"] == 3  # rows of the letters
    assert cli("purge", *NOW, *DO).out.split() == ["purged", "nothing", "reason", "a", "test"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--yes"], 2),
        (["--yes", "--reason", "  "], 2),
        (["--yes", "--reason", "x" * 500], 2),
        (["--yes", "--reason", "x", "--dry-run"], 2),
        (["--done-older-than", "7"], 2),
        (["--done-older-than", "-7d"], 2),
        (["--done-older-than", "7 days"], 2),
        (["--done-older-than", ""], 2),
        (["--done-older-than", "٧d"], 2),
        (["--dead-older-than", "99999999999999999999d"], 2),
        (["--dead-older-than", "36501d"], 2),
        (["--dead-older-than", "1e3d"], 2),
        (["--mailbox", ""], 2),
        (["--mailbox", "a b"], 2),
        (["--mailbox", "\x1b[2J"], 2),
        (["--bus", "bus", "--mailbox", "coder"], 2),
        (["--bus", "bus", "--including-steps"], 2),
        (["--bus", "not-there"], 4),
        (["--bus", ""], 4),
        (["--no-such-option"], 2),
        (["surplus"], 2),
    ],
)
def test_words_that_do_not_fit_are_refused_and_nothing_changes(
    cli: Cli, words: list[str], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    before = files(cli.path)
    ran = cli.json("purge", *words)
    assert ran.code == code, (ran.out, ran.err)
    assert ran.error["hint"]
    assert files(cli.path) == before


def test_there_must_be_a_mesh(empty: Cli) -> None:
    assert empty("purge").code == 4
    assert empty("purge", *DO).code == 4
    assert not empty.path.exists()


def test_a_directory_that_another_program_has_open_can_be_looked_at_and_not_purged(cli: Cli) -> None:
    with Mesh(cli.path):
        assert cli.json("purge", *NOW).rows[-1]["count"] > 0
        ran = cli.json("purge", *NOW, *DO)
        assert (ran.code, ran.error["code"]) == (5, "DIRECTORY_IN_USE")
    assert len(cli.json("dlq", "list").rows) == 3


def test_an_audit_log_that_cannot_be_written_stops_the_purge(cli: Cli) -> None:
    server_folder(cli.path).mkdir(exist_ok=True)
    (server_folder(cli.path) / "audit.jsonl").mkdir()
    assert cli("purge", *NOW, *DO).code == 1
    assert len(cli.json("dlq", "list").rows) == 3


LATER = """
import sys, time
real = time.time_ns
time.time_ns = lambda: real() + 90 * 86400 * 10**9
from relaymesh.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_only_what_was_asked_goes_although_opening_a_mesh_removes_what_is_old(cli: Cli) -> None:
    words = ("purge", "--dead-older-than", "80d", *DO, "--json", "--dir", str(cli.path))
    later = subprocess.run(
        [sys.executable, "-c", LATER, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert later.returncode == 0, later.stderr
    purged = json.loads(later.stdout.splitlines()[-1])["purged"]
    assert {kind: count for kind, count in purged.items() if count} == {"dead_letters": 3}


# -- the report


def test_the_report_is_shown_for_people_and_programs(cli: Cli) -> None:
    found = cli.json("dlq", "report").row
    assert (found["total"], found["groups"]) == (0, [])  # written at the first start
    assert "0 wait for a decision" in cli("dlq", "report", "--day", found["day"]).out
    assert cli("dlq", "report", "--day", "2001-01-01").code == 4
    assert cli("dlq", "report", "--day", "yesterday").code == 2
    assert found["day"] in cli("doctor").out


def test_without_a_mesh_there_is_no_report(empty: Cli) -> None:
    assert empty("dlq", "report").code == 4


# -- through a node


@pytest.fixture
def served(cli: Cli) -> Iterator[ServerThread]:
    with ServerThread(cli.path) as server:
        yield server


def remote(server: ServerThread, capsys: pytest.CaptureFixture[str], token: str, *words: str) -> Ran:
    capsys.readouterr()
    code = main([*words, "--json", "--url", server.url, "--token", token])
    out, err = capsys.readouterr()
    return Ran(code, out, err)


def test_a_node_is_asked_by_its_url(
    cli: Cli, served: ServerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    token = served.token(["admin"], "*")
    assert remote(served, capsys, token, "purge", *NOW).rows[-1]["dry_run"] is True
    served.node.catch_up(10)
    ran = remote(served, capsys, token, "purge", *NOW, *DO)
    assert (ran.code, ran.rows[-1]["purged"]["dead_letters"]) == (0, 3), ran.err
    assert remote(served, capsys, token, "dlq", "report").row["day"]
    assert remote(served, capsys, token, "dlq", "report", "--day", "2001-01-01").code == 4
    served.stop()
    began, *parts = audited(cli.path)
    assert began["event"] == "purge.began"
    assert any("3 dead letters" in part["detail"] and "a test" in part["detail"] for part in parts)
    assert all(part["token"] for part in parts)


def test_a_served_directory_is_purged_through_its_node(cli: Cli, served: ServerThread) -> None:
    secret = served.token(["admin"], "*")
    write_address(cli.path, NodeAddress(url=served.url, pid=os.getpid(), started="now", protocol="1.1"))
    (server_folder(cli.path) / "local.token").write_text(secret)
    assert cli.json("purge", *NOW, *DO).rows[-1]["purged"]["dead_letters"] == 3
    assert served.node.core.read(lambda kernel: kernel.state.letters.count) == 0
    served.stop()
    assert {line["event"] for line in audited(cli.path)} == {"purge.began", "purge"}


@pytest.mark.parametrize("scope", [["read"], ["write"], ["agent:coder"], ["admin"]])
def test_it_takes_an_admin_of_every_namespace(
    served: ServerThread, capsys: pytest.CaptureFixture[str], scope: list[str]
) -> None:
    token = served.token(scope)
    for words in (("purge", *NOW), ("purge", *NOW, *DO)):
        assert remote(served, capsys, token, *words).code == 3
    assert served.node.core.read(lambda kernel: kernel.state.letters.count) == 3


# -- of a file bus


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    path = tmp_path / "bus"
    make_bus(path, ["coder"])
    (path / "done/2020-01-01").mkdir()
    for place in ("done/2020-01-01/m~0.1.1.meta.json", "dead/job.reason.json", "receipt/job.receipt.json"):
        (path / place).write_text("{}")
        os.utime(path / place, (1_577_900_000, 1_577_900_000))
    (path / "receipt/new.receipt.json").write_text("{}")
    return path


def test_a_bus_is_previewed_and_purged_without_a_mesh(empty: Cli, bus: Path) -> None:
    before = files(bus)
    *rows, summary = empty.json("purge", "--bus", str(bus)).rows
    assert [(row["kind"], row["place"], row["count"]) for row in rows] == [
        ("dead", "dead", 1),
        ("done", "done/2020-01-01", 1),
        ("receipts", "receipt", 1),
    ]
    assert (summary["dry_run"], summary["count"]) == (True, 3)
    assert files(bus) == before
    ran = empty.json("purge", "--bus", str(bus), *DO)
    assert ran.rows[-1]["purged"] == {"done": 1, "receipts": 1, "dead": 1}
    assert not (bus / "done/2020-01-01").exists()
    assert (bus / "receipt/new.receipt.json").exists()
    lines = [line.fields for line in read_lines(bus / ".gateway")]
    assert [line["event"] for line in lines] == ["purge.began", "purge"]
    assert "removed 1 done, 1 receipts, 1 dead: a test" in lines[1]["detail"]
    assert (bus / ".gateway/audit.jsonl").stat().st_mode & 0o077 == 0


def test_one_age_alone_leaves_the_other_files_of_a_bus(empty: Cli, bus: Path) -> None:
    ran = empty.json("purge", "--bus", str(bus), "--dead-older-than", "1d", *DO)
    assert ran.rows[-1]["purged"] == {"dead": 1}
    assert (bus / "done/2020-01-01").exists()


def test_two_purges_of_a_bus_at_once_are_one(empty: Cli, bus: Path) -> None:
    lock = RealLock(bus / ".gateway/audit.lock")
    try:
        ran = empty.json("purge", "--bus", str(bus), *DO)
    finally:
        lock.release()
    assert (ran.code, ran.error["code"]) == (5, "DIRECTORY_IN_USE")
    assert (bus / "done/2020-01-01").exists()


# -- another user


AS_NOBODY = """
import os, sys
import getpass, pwd, zoneinfo, relaymesh.gateways.filebus.directory, relaymesh.gateways.filebus.retention
from relaymesh.cli.main import main
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root becomes another user")
def test_a_directory_of_another_user_is_refused_in_one_line(cli: Cli, bus: Path) -> None:
    before = (files(cli.path), files(bus))
    for words in ((*NOW,), (*NOW, *DO), ("--bus", str(bus)), ("--bus", str(bus), *DO)):
        ran = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, "purge", *words, "--dir", str(cli.path)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode in (1, 3, 4), (words, ran.stdout, ran.stderr)
        assert "Traceback" not in ran.stderr
        assert "error: " in ran.stderr
    assert (files(cli.path), files(bus)) == before
