"""A hint fits its case: what to do next about exactly this mistake, by every way in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaymesh import (
    Agent,
    AsyncMesh,
    Closed,
    Conflict,
    InvalidEnvelope,
    InvalidSettings,
    InvalidValue,
    Mesh,
    MeshError,
    NoAnswer,
    NotFound,
    UnknownRecipient,
)
from relaymesh.cli.main import main
from tests.client.serving import ServerThread

Mistake = Callable[[Any, Agent], object]


def broken(content: Any) -> Any:
    raise ValueError(content)


SDK: dict[str, tuple[Mistake, type[MeshError], str, str]] = {
    "a dead letter that is not there": (
        lambda mesh, coder: mesh.redrive("m-1"),
        NotFound,
        "no dead letter of message 'm-1'",
        "mesh.dead_letters() lists them; on the command line: relaymesh dlq list",
    ),
    "dead letters to purge that are not there": (
        lambda mesh, coder: mesh.purge_dead_letters(["m-1"]),
        NotFound,
        "no dead letter of message 'm-1'",
        "mesh.dead_letters() lists them",
    ),
    "a subscription that is not there": (
        lambda mesh, coder: mesh.unsubscribe("order.*", "billing"),
        NotFound,
        "no subscription default/order.*:billing",
        "relaymesh topic list: all subscriptions",
    ),
    "a recipient that is not there": (
        lambda mesh, coder: coder.send("codr", 1),
        UnknownRecipient,
        "no mailbox 'codr'",
        "check the spelling, or open the mailbox first: mesh.agent(name)",
    ),
    "an id with other content": (
        lambda mesh, coder: [coder.send("coder", content, id="m-1") for content in (1, 2)],
        Conflict,
        "id 'm-1' was already sent to default/coder with other content",
        "use a new id for new content",
    ),
    "a name that no agent can have": (
        lambda mesh, coder: mesh.agent(""),
        InvalidEnvelope,
        "agent name is empty",
        "nothing was written; correct the named value and call again",
    ),
    "a role that there is not": (
        lambda mesh, coder: coder.register(role="boss"),
        InvalidEnvelope,
        "role 'boss' is none of",
        "correct the named value and call again",
    ),
    "no word on which dead letters": (
        lambda mesh, coder: mesh.purge_dead_letters(),
        InvalidSettings,
        "which dead letters?",
        "receiver='coder', or status='pending' for all",
    ),
    "ids that are none": (
        lambda mesh, coder: mesh.redrive(7),
        InvalidValue,
        "which must be ids, dead letters or None",
        "nothing was changed; correct the named value and call again",
    ),
    "a batch to ack that is none": (
        lambda mesh, coder: mesh.ack_many(7),
        InvalidValue,
        "ack_many takes a list of deliveries",
        "nothing was changed; correct the named value and call again",
    ),
    "an answer that does not come": (
        lambda mesh, coder: mesh.agent("planner").ask("coder", "?", timeout=0.01),
        NoAnswer,
        "did not answer question",
        "wait longer, or ask again with the same id",
    ),
    "a setting that there is not": (
        lambda mesh, coder: mesh.agent("coder", lease=5),
        InvalidSettings,
        "a mailbox has no setting 'lease'",
        "settings are ",
    ),
}


@pytest.fixture(params=["embedded", "remote"])
def mesh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Mesh]:
    if request.param == "embedded":
        with Mesh(tmp_path / "mesh") as mesh:
            yield mesh
    else:
        with (
            ServerThread(tmp_path / "served") as server,
            Mesh(server.url, token=server.token()) as mesh,
        ):
            yield mesh


def check(error: MeshError, message: str, hint: str) -> None:
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize("case", SDK)
def test_the_sdk_says_what_to_do_next(mesh: Mesh, case: str) -> None:
    mistake, kind, message, hint = SDK[case]
    coder = mesh.agent("coder")
    with pytest.raises(kind) as caught:
        mistake(mesh, coder)
    check(caught.value, message, hint)


def test_an_edit_that_fails_is_corrected_and_not_sent_again(mesh: Mesh) -> None:
    coder = mesh.agent("coder")
    coder.send("coder", {"do": "x"})
    coder.receive(timeout=5).nack("poison", retryable=False)
    with pytest.raises(InvalidEnvelope, match="nothing was redriven") as caught:
        mesh.redrive(receiver="coder", edit=broken)
    assert caught.value.hint == "correct the edit function and redrive again"


def test_a_question_that_died_is_found_among_the_dead_letters(mesh: Mesh) -> None:
    @mesh.agent("coder").handle
    def work(delivery: Any) -> None:
        delivery.nack("no", retryable=False)

    with pytest.raises(NoAnswer, match="will not answer") as caught:
        mesh.agent("planner").ask("coder", "?", timeout=10)
    assert "relaymesh dlq list" in caught.value.hint


def test_a_closed_mesh_is_opened_anew(mesh: Mesh) -> None:
    coder = mesh.agent("coder")
    mesh.close()
    with pytest.raises(Closed, match="this mesh is closed") as caught:
        coder.send("coder", 1)
    assert "open a new Mesh" in caught.value.hint


async def test_a_mesh_that_is_not_open_yet_is_opened() -> None:
    with pytest.raises(Closed, match="not open") as caught:
        await AsyncMesh(durability="memory").agent("coder")
    assert caught.value.hint == "use it in an async with block, or await mesh.open()"


HTTP: list[tuple[str, str, Any, str, str, str]] = [
    ("GET", "/v1/dead-letters/77", None, "NOT_FOUND", "no dead letter", "GET /v1/dead-letters lists them"),
    ("GET", "/v1/agents/codr", None, "NOT_FOUND", "no agent default/codr", "GET /v1/agents"),
    ("GET", "/v1/mailboxes/codr", None, "NOT_FOUND", "no mailbox", "GET /v1/stats lists them"),
    ("GET", "/v1/messages/m-1", None, "NOT_FOUND", "no message 'm-1'", "kept for a week"),
    ("GET", "/v1/nothing", None, "NOT_FOUND", "no path /v1/nothing", "GET /openapi.json lists every path"),
    ("GET", "/v1/mailboxes/coder?limit=-1", None, "INVALID_MESSAGE", "limit must lie", "call again"),
    (
        "POST",
        "/v1/messages",
        {"from": "coder", "to": "codr", "type": "message", "content": 1},
        "UNKNOWN_RECIPIENT",
        "no mailbox 'codr'",
        "PUT /v1/mailboxes/{name}",
    ),
]


@pytest.mark.parametrize(("method", "path", "body", "code", "message", "hint"), HTTP)
def test_a_problem_document_says_what_to_do_next(
    server: ServerThread, method: str, path: str, body: Any, code: str, message: str, hint: str
) -> None:
    headers = {"authorization": f"Bearer {server.token()}"}
    with httpx.Client(base_url=server.url, headers=headers) as http:
        assert http.put("/v1/mailboxes/coder", json={}).is_success
        problem = http.request(method, path, json=body).json()
    assert problem["code"] == code
    assert message in problem["detail"]
    assert hint in problem["hint"]


CLI: list[tuple[list[str], str, str, str]] = [
    (["dlq", "show", "m-1"], "NOT_FOUND", "no dead letter of message 'm-1'", "relaymesh dlq list"),
    (["dlq", "redrive", "m-1", "--yes"], "NOT_FOUND", "no dead letter", "relaymesh dlq list"),
    (["agent", "show", "codr"], "NOT_FOUND", "no agent 'codr'", "relaymesh agent list shows them"),
    (["audit", "list"], "NOT_FOUND", "no audit log", "relaymesh serve"),
    (["token", "revoke", "t-1", "--yes"], "NOT_FOUND", "no token of that id", "relaymesh token list"),
    (["send", "codr", "x"], "UNKNOWN_RECIPIENT", "no mailbox 'codr'", "did you mean coder?"),
    (["status", "--url", "http://127.0.0.1:1"], "INVALID_SETTINGS", "--dir is", "leave out --dir or --url"),
]


@pytest.mark.parametrize(("words", "code", "message", "hint"), CLI, ids=lambda each: str(each)[:40])
def test_the_command_line_says_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: str, message: str, hint: str
) -> None:
    with Mesh(tmp_path / "mesh") as mesh:
        mesh.agent("coder")
    assert main([*words, "--dir", str(tmp_path / "mesh"), "--json"]) != 0
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    error = next(line for line in lines if "note" not in line)
    said = error.get("error", error)
    assert said["code"] == code
    assert message in said["message"]
    assert hint in said["hint"]


def test_dead_letters_are_advised_only_where_a_dead_letter_is_missing() -> None:
    """The usual hint of `NotFound` fits whatever was not found."""
    assert re.search(r"status.*agent list.*dlq list", NotFound.default_hint)
