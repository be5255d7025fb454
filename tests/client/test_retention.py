"""Purges and reports through a node, over both transports: the same words, the same answers, audited."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaymesh import AsyncMesh, Mesh, NotFound, Unauthorized
from relaymesh.errors import SenderError
from relaymesh.server.address import server_folder
from relaymesh.server.security.chain import read_lines
from relaymesh.wire.letter_report import LetterReport
from tests.client.serving import ServerThread

TRANSPORTS: list[Any] = ["websocket", "http"]


def fill(server: ServerThread) -> None:
    with Mesh(server.url, token=server.token(["admin"], "*")) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        for number in range(4):
            planner.send("coder", number, id=f"m{number}")
        for number, delivery in enumerate(coder.receive_many(3, timeout=5)):
            delivery.ack() if number else delivery.nack("no", code="fatal", retryable=False)
        first_report(mesh)
    server.node.catch_up(10)


def first_report(mesh: Mesh) -> LetterReport:
    """The report that a node writes at its start, in a thread beside the calls."""
    until = time.monotonic() + 30
    while True:
        try:
            return mesh.dead_letter_report()
        except NotFound:
            assert time.monotonic() < until
            time.sleep(0.01)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_purge_counts_first_and_removes_what_was_counted(
    server: ServerThread, transport: Any, tmp_path: Path
) -> None:
    fill(server)
    with Mesh(server.url, token=server.token(["admin"], "*"), transport=transport) as mesh:
        seen = mesh.purge(done_older_than=0, dead_older_than=timedelta(0), mailbox="coder")
        assert {(row.kind, row.mailbox): row.count for row in seen.rows} == {
            ("messages", "default/coder"): 2,
            ("dead_letters", "default/coder"): 1,
        }
        assert (seen.dry_run, seen.purged, seen.waiting_letters) == (True, {}, 0)
        gone = mesh.purge(
            done_older_than=0, dead_older_than=0, mailbox="coder", dry_run=False, reason="over the wire"
        )
        assert {kind: count for kind, count in gone.purged.items() if count} == {
            "messages": 2,
            "dead_letters": 1,
        }
        assert gone.rows[0].oldest <= gone.rows[0].newest
        assert mesh.dead_letters() == []
        report = mesh.dead_letter_report()
        assert mesh.dead_letter_report(report.day) == report
        with pytest.raises(NotFound):
            mesh.dead_letter_report("2001-01-01")
        bad: list[dict[str, Any]] = [{"done_older_than": -1}, {"dry_run": False}, {"mailbox": 7}]
        for words in bad:
            with pytest.raises(SenderError):
                mesh.purge(**words)
    server.stop()
    details = [
        str(line.fields["detail"])
        for line in read_lines(server_folder(tmp_path / "mesh"))
        if line.fields["event"] == "purge"
    ]
    assert any("removed 2 messages, 1 dead letters: over the wire; done before" in each for each in details)
    assert all("only default/coder" in each for each in details)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_it_can_be_awaited(server: ServerThread, transport: Any) -> None:
    fill(server)
    async with AsyncMesh(server.url, token=server.token(["admin"], "*"), transport=transport) as mesh:
        assert (await mesh.purge(dead_older_than=0)).rows[0].count == 1
        gone = await mesh.purge(dead_older_than=0, dry_run=False, reason="awaited")
        assert gone.purged["dead_letters"] == 1
        assert (await mesh.dead_letter_report()).day


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("scopes", [["write"], ["admin"]])
def test_an_admin_of_one_namespace_may_not(server: ServerThread, transport: Any, scopes: list[str]) -> None:
    fill(server)
    with Mesh(server.url, token=server.token(scopes), transport=transport) as mesh:
        with pytest.raises(Unauthorized):
            mesh.purge(dead_older_than=0)
        with pytest.raises(Unauthorized):
            mesh.purge(dead_older_than=0, dry_run=False, reason="x")


def test_a_reader_sees_its_own_namespace_in_the_report(server: ServerThread) -> None:
    fill(server)
    again = server.again()
    try:
        for report in (again.node.path / "reports").iterdir():  # type: ignore[operator]
            report.unlink()
        again = again.again()
        with Mesh(again.url, token=again.token(["read"])) as mesh:
            assert first_report(mesh).total == 1
        with Mesh(again.url, token=again.token(["read"], "team")) as mesh:
            assert (mesh.dead_letter_report().total, mesh.dead_letter_report().groups) == (0, [])
    finally:
        again.stop()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"reason": "x"},
        {"reason": "", "doneBefore": "2026-01-01"},
        {"reason": "  ", "doneBefore": "2026-01-01"},
        {"reason": "x", "doneBefore": "yesterday"},
        {"reason": "x", "doneBefore": 7},
        {"reason": "x", "deadBefore": "2026-01-01", "after": -1},
        {"reason": "x", "deadBefore": "2026-01-01", "mailbox": ""},
        {"reason": "x", "deadBefore": "2026-01-01", "includingSteps": "yes"},
        {"reason": "x" * 161, "deadBefore": "2026-01-01"},
        {"reason": "x", "deadBefore": "2026-01-01", "unknown": 1},
        [],
    ],
)
def test_a_body_that_is_wrong_is_refused_with_400(server: ServerThread, body: Any) -> None:
    headers = {"authorization": f"Bearer {server.token(['admin'], '*')}"}
    answer = httpx.post(f"{server.url}/v1/purge", json=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert answer.json()["hint"]


@pytest.mark.parametrize(
    "query", ["done_ms=-1", "done_ms=x", "dead_ms=1e99", "mailbox=", "including_steps=7", "unknown=1"]
)
def test_a_query_that_is_wrong_is_refused_with_400(server: ServerThread, query: str) -> None:
    headers = {"authorization": f"Bearer {server.token(['admin'], '*')}"}
    assert httpx.get(f"{server.url}/v1/purge?{query}", headers=headers).status_code == 400
    assert httpx.get(f"{server.url}/v1/dead-letters/report?day=x", headers=headers).status_code == 400
