"""doctor: every check says what it found, in words, and what to do next."""

from __future__ import annotations

import pytest

from relaymesh.sdk.mesh import Mesh
from tests.cli.running import Cli
from tests.cli.test_journal import damage

CHECKS = [
    "python", "clocks", "directory", "disk", "sync", "lock", "journal", "mirror", "checkpoint", "replay",
    "mesh time", "store", "integrity", "dead letters",
]  # fmt: skip


def found(cli: Cli) -> dict[str, dict[str, object]]:
    return {row["check"]: row for row in cli.json("doctor").rows}


def test_a_healthy_mesh_passes(cli: Cli) -> None:
    ran = cli.json("doctor")
    assert ran.code == 0
    assert [row["check"] for row in ran.rows] == CHECKS
    assert all(set(row) == {"check", "status", "found", "next"} for row in ran.rows)
    checks = {row["check"]: row for row in ran.rows}
    assert checks["dead letters"]["next"] == "relaymesh dlq list"
    assert "p50" in checks["sync"]["found"]
    assert "p99" in checks["sync"]["found"]


def test_the_report_for_people_has_words_beside_the_marks(cli: Cli) -> None:
    shown = cli("doctor")
    assert shown.code == 0
    assert "✓ ok    journal" in shown.out
    assert "! note  dead letters  3 wait" in shown.out
    assert "next: relaymesh dlq list" in shown.out


def test_nothing_is_left_behind(cli: Cli) -> None:
    before = sorted(path.name for path in cli.path.iterdir())
    cli("doctor")
    assert (
        sorted(path.name for path in cli.path.iterdir() if not path.name.endswith(("-shm", "-wal"))) == before
    )


def test_a_directory_that_is_not_there_yet_is_no_failure(empty: Cli) -> None:
    ran = empty.json("doctor")
    assert ran.code == 0
    assert ran.rows[-1]["status"] == "note"
    assert "does not exist yet" in ran.rows[-1]["found"]
    assert not empty.path.exists()


def test_damage_fails_the_check_and_names_the_next_command(cli: Cli) -> None:
    damage(cli.path)
    ran = cli.json("doctor")
    checks = {row["check"]: row for row in ran.rows}
    assert (ran.code, ran.error["code"]) == (9, "CHECK_FAILED")
    assert checks["journal"]["status"] == "fail"
    assert checks["journal"]["next"] == "relaymesh journal verify"
    assert list(checks) == CHECKS
    assert "✗ FAIL  journal" in cli("doctor").out


def test_a_broken_store_fails_and_the_named_command_repairs_it(cli: Cli) -> None:
    (cli.path / "store.db").write_bytes(b"x" * 8192)
    checks = found(cli)
    assert checks["store"]["status"] == "fail"
    assert "store rebuild" in str(checks["store"]["next"])
    cli("store", "rebuild")
    assert found(cli)["store"]["status"] == "ok"


def test_a_store_of_another_journal_is_found_out(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    with Mesh(other) as mesh:
        mesh.agent("a").send_many([{"to": "a", "content": i} for i in range(100)])
    (cli.path / "store.db").write_bytes((other / "store.db").read_bytes())
    assert found(cli)["store"]["status"] == "fail"


def test_a_held_directory_is_told_with_its_process(cli: Cli) -> None:
    with Mesh(cli.path):
        checks = found(cli)
    assert "held by process" in str(checks["lock"]["found"])
    assert all(check["status"] != "fail" for check in checks.values())


def test_a_full_disk_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from shutil import _ntuple_diskusage

    monkeypatch.setattr("shutil.disk_usage", lambda _: _ntuple_diskusage(10**9, 10**9 - 10**6, 10**6))
    checks = found(cli)
    assert checks["disk"]["status"] == "fail"
    assert "free space" in str(checks["disk"]["next"])


def test_a_wall_clock_behind_the_journal_is_noted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    real = time.time
    monkeypatch.setattr("time.time", lambda: real() - 3600)
    check = found(cli)["mesh time"]
    assert check["status"] == "note"
    assert "ahead of the wall clock" in str(check["found"])
