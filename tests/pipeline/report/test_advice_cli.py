"""`relaymesh report advice`: what the tables give reason to change, in words and in files, and no more."""

from __future__ import annotations

import json
from pathlib import Path

from markupsafe import escape

from relaymesh.cli.failure import Exit
from tests.pipeline.report.conftest import Running
from tests.pipeline.report.warehouse import publish


def everything_in(warehouse: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(warehouse.rglob("*")) if path.is_file()}


def test_advice_is_printed_with_its_reasons_and_kept_as_two_files(
    report: Running, warehouse: Path, tmp_path: Path
) -> None:
    before = everything_in(warehouse)
    ran = report("advice", "--out", "proposals")
    assert ran.code == Exit.OK, ran.err
    kept = tmp_path / "proposals"
    assert ran.out == (kept / "proposal.txt").read_text(encoding="utf-8")
    told = json.loads((kept / "proposal.json").read_text(encoding="utf-8"))
    assert told["suggestions"], "the warehouse of these tests gives reason for some"
    first, note, blank, mailbox, setting, reason, *_ = ran.out.splitlines()
    assert first == f"Proposal of {told['made_at']}"
    assert (
        note
        == told["note"]
        == ("This is a proposal. Nothing in it has been applied, and nothing will be by itself.")
    )
    assert (blank, mailbox) == ("", told["suggestions"][0]["mailbox"])
    assert setting.startswith(f"  {told['suggestions'][0]['setting']} = ")
    assert reason == (
        f"      because {told['suggestions'][0]['reasoning']}  [{told['suggestions'][0]['table']}]"
    )
    assert "also in" in ran.err
    assert everything_in(warehouse) == before, "a proposal is never applied, and no table is touched"

    for_programs = report("advice", "--json").row
    assert for_programs["suggestions"] == told["suggestions"]
    assert (tmp_path / "proposal.json").exists(), "without --out the files go where you are"


def test_a_report_has_the_proposal_beside_it(report: Running, tmp_path: Path) -> None:
    ran = report("build", "--no-run", "--json", "--out", "here/page.html")
    assert ran.row["proposal"] == str(tmp_path / "here" / "proposal.txt")
    told = json.loads((tmp_path / "here" / "proposal.json").read_text(encoding="utf-8"))
    page = (tmp_path / "here" / "page.html").read_text(encoding="utf-8")
    assert all(str(escape(each["mailbox"])) in page for each in told["suggestions"])


def test_tables_without_a_reason_give_an_empty_proposal_and_no_tables_are_said(
    report: Running, warehouse: Path, tmp_path: Path
) -> None:
    publish(warehouse, {})
    ran = report("advice")
    assert "Nothing to propose: the tables give no reason to change a setting." in ran.out
    assert json.loads((tmp_path / "proposal.json").read_text())["suggestions"] == []
    (warehouse / "manifest.json").unlink()
    assert report("advice").code == Exit.NOT_FOUND
