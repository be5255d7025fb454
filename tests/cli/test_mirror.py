"""verify --mirror, restore, and what doctor says of a mirror."""

from __future__ import annotations

import shutil
from pathlib import Path
from shlex import quote

import pytest

from relaymesh.cli.failure import Exit
from relaymesh.node.settings import MeshSettings
from relaymesh.sdk.mesh import Mesh
from tests.cli.running import Cli, piped
from tests.cli.test_journal import damage


@pytest.fixture
def mirror(cli: Cli, tmp_path: Path) -> Path:
    """The filled mesh was opened once with a mirror."""
    path = tmp_path / "mirror"
    with Mesh(cli.path, settings=MeshSettings(mirror=path)) as mesh:
        mesh.agent("planner").send("coder", "with a mirror")
    return path


def checked(cli: Cli) -> dict[str, dict[str, object]]:
    return {row["check"]: row for row in cli.json("doctor").rows}


def test_two_whole_directories_pass(cli: Cli, mirror: Path) -> None:
    ran = cli("journal", "verify", "--mirror", str(mirror))
    assert ran.code == 0
    assert ran.out.splitlines()[0].split() == ["whole", "both"]
    told = cli.json("journal", "verify", "--mirror", str(mirror)).row
    assert (told["whole"], told["behind"], told["ahead"], told["differences"]) == ("both", 0, 0, [])
    assert told["primary"] == told["mirror"]
    assert told["primary"]["result"] == "ok"


def test_damage_in_the_data_directory_is_named_with_the_command_that_restores(cli: Cli, mirror: Path) -> None:
    damage(cli.path)
    ran = cli.json("journal", "verify", "--mirror", str(mirror))
    assert ran.code == Exit.CHECK_FAILED
    assert ran.row["whole"] == "the mirror"
    [found] = ran.row["primary"]["damage"]
    assert (ran.row["differences"][0]["file"], ran.row["differences"][0]["why"]) == (
        found["segment"],
        "the frames differ",
    )
    assert (
        ran.error["hint"]
        == f"relaymesh journal restore --from {quote(str(mirror))} --dir {quote(str(cli.path))}"
    )
    words = cli("journal", "verify", "--mirror", str(mirror))
    assert "damaged in 1 place" in words.err
    assert "the frames differ" in words.out


def test_damage_in_the_mirror_is_named_as_such(cli: Cli, mirror: Path) -> None:
    damage(mirror)
    ran = cli.json("journal", "verify", "--mirror", str(mirror))
    assert ran.code == Exit.CHECK_FAILED
    assert ran.row["whole"] == "the data directory"
    assert ran.error["message"].startswith("the mirror is damaged")
    damage(cli.path)
    both = cli.json("journal", "verify", "--mirror", str(mirror))
    assert both.row["whole"] == "neither"
    assert "delete" not in both.error["hint"]


def test_a_mirror_that_is_behind_fails_the_check_unless_its_node_runs(cli: Cli, mirror: Path) -> None:
    (cli.path / "mirror").unlink()
    with Mesh(cli.path) as mesh:
        mesh.agent("planner").send("coder", "without the mirror")
        running = cli.json("journal", "verify", "--mirror", str(mirror))
        assert running.code == 0
        assert running.row["behind"] > 0
    ran = cli.json("journal", "verify", "--mirror", str(mirror))
    assert ran.code == Exit.CHECK_FAILED
    assert "the mirror lacks" in ran.error["message"]


def test_verify_works_beside_a_running_node(cli: Cli, mirror: Path) -> None:
    with Mesh(cli.path) as mesh:
        mesh.agent("planner").send("coder", "x")
        assert cli.json("journal", "verify", "--mirror", str(mirror)).row["whole"] == "both"


def test_a_damaged_directory_is_restored_and_kept_aside(cli: Cli, mirror: Path) -> None:
    before = cli.json("journal", "cat", "--full").rows
    damage(cli.path)
    refused = piped("send", "coder", "x", "--dir", str(cli.path))
    assert refused.code == Exit.CHECK_FAILED
    assert (
        f"relaymesh journal restore --from {quote(str(mirror))} --dir {quote(str(cli.path))}" in refused.err
    )
    ran = cli.json("journal", "restore", "--from", str(mirror))
    assert ran.code == 0
    aside = Path(ran.row["aside"])
    assert aside.parent == cli.path
    assert list(aside.glob("journal/*.rmj"))
    assert cli.json("journal", "cat", "--full").rows == before
    assert cli.json("journal", "verify").code == 0
    assert cli("send", "coder", "and on it goes").code == 0
    told = cli.json("journal", "verify", "--mirror", str(mirror)).row
    assert (told["whole"], told["behind"]) == ("both", 0), "and the mirror is still kept"


def test_a_lost_directory_is_restored(cli: Cli, mirror: Path) -> None:
    shutil.rmtree(cli.path)
    ran = cli.json("journal", "restore", "--from", str(mirror))
    assert ran.code == 0
    assert ran.row["aside"] is None
    assert cli.json("journal", "verify", "--mirror", str(mirror)).row["whole"] == "both"


def test_a_whole_directory_is_not_replaced(cli: Cli, mirror: Path) -> None:
    ran = cli.json("journal", "restore", "--from", str(mirror), "--yes")
    assert ran.code == Exit.CONFLICT
    assert "nothing needs to be restored" in ran.error["hint"]


def test_a_damaged_directory_that_may_hold_more_needs_a_yes(cli: Cli, mirror: Path) -> None:
    (cli.path / "mirror").unlink()
    with Mesh(cli.path) as mesh:
        mesh.agent("planner").send("coder", "not in the mirror")
    damage(cli.path)
    refused = piped("journal", "restore", "--from", str(mirror), "--dir", str(cli.path))
    assert refused.code == Exit.USAGE
    assert "may hold" in refused.err
    assert not list(cli.path.glob("set-aside-*"))
    assert cli("journal", "restore", "--from", str(mirror), "--yes").code == 0


def test_nothing_is_restored_from_a_damaged_or_unfinished_mirror(cli: Cli, mirror: Path) -> None:
    damage(cli.path)
    (mirror / "incomplete").write_text("why it was being brought in step\n")
    unfinished = cli.json("journal", "restore", "--from", str(mirror), "--yes")
    assert unfinished.code == Exit.CHECK_FAILED
    assert "not complete" in unfinished.error["message"]
    (mirror / "incomplete").unlink()
    damage(mirror)
    ran = cli.json("journal", "restore", "--from", str(mirror), "--yes")
    assert ran.code == Exit.CHECK_FAILED
    assert "nothing is restored" in ran.error["message"]
    assert not list(cli.path.glob("set-aside-*"))


def test_a_mirror_that_is_not_there_is_not_found(cli: Cli, tmp_path: Path) -> None:
    for command in (("verify", "--mirror"), ("restore", "--from")):
        ran = cli.json("journal", *command, str(tmp_path / "nowhere"))
        assert ran.code == Exit.NOT_FOUND


def test_an_unfinished_restore_is_no_journal_until_it_is_run_again(cli: Cli, mirror: Path) -> None:
    (cli.path / "incomplete").write_text("why it was being restored from a mirror\n")
    ran = cli.json("send", "coder", "x")
    assert ran.code == Exit.CHECK_FAILED
    assert "not complete: it was being restored" in ran.error["message"]
    assert cli("journal", "restore", "--from", str(mirror)).code == 0
    assert cli("send", "coder", "x").code == 0


def test_doctor_tells_how_the_mirror_stands(cli: Cli, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(cli)["mirror"]
    assert found["status"] == "note"
    assert f"required: {mirror} is in step, on the same disk" in str(found["found"])
    shutil.move(mirror, mirror.with_name("elsewhere"))
    found = checked(cli)["mirror"]
    assert found["status"] == "fail"
    assert "is not there" in str(found["found"])


def test_doctor_says_when_there_is_none(cli: Cli) -> None:
    found = checked(cli)["mirror"]
    assert (found["status"], found["found"]) == ("ok", "none: this disk alone holds the journal")


def test_doctor_tells_of_a_mirror_that_was_not_filled(cli: Cli, mirror: Path) -> None:
    (mirror / "incomplete").write_text("why it was being brought in step\n")
    found = checked(cli)["mirror"]
    assert (found["status"], found["next"]) == ("note", "start the node")
