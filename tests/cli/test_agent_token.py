"""The command line with the token of one agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relaymesh.cli.main import main
from tests.cli.running import Ran
from tests.client.serving import ServerThread


class Remote:
    """Commands on a node, with one token."""

    def __init__(self, url: str, token: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._place = ["--url", url, "--token", token, "--json"]
        self._capsys = capsys

    def __call__(self, *words: str) -> Ran:
        self._capsys.readouterr()
        code = main([*words, *self._place])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Ran(code, out, err)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    served = ServerThread(tmp_path / "mesh")
    yield served
    served.stop()


@pytest.fixture(params=["default", "team"])
def namespace(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def coder(server: ServerThread, namespace: str, capsys: pytest.CaptureFixture[str]) -> Remote:
    admin = Remote(server.url, server.token(["admin"], namespace), capsys)
    for name in ("planner", "coder"):
        assert admin("agent", "register", name).code == 0
    return Remote(server.url, server.token(["agent:coder"], namespace), capsys)


def test_it_sends_as_its_agent_and_reads_its_own_mailbox(coder: Remote, namespace: str) -> None:
    sent = coder("send", "coder", "to myself", "--from", "coder")
    assert (sent.code, sent.row["to"]) == (0, f"{namespace}/coder"), sent.err
    assert coder("send", "planner", "to another", "--from", "coder").code == 0
    waiting = coder("inbox", "coder")
    assert (waiting.code, [row["content"] for row in waiting.rows]) == (0, ["to myself"]), waiting.err
    taken = coder("inbox", "coder", "--take", "5", "--ack")
    assert (taken.code, [row["content"] for row in taken.rows]) == (0, ["to myself"]), taken.err


def test_it_lists_the_names_it_may_send_to(coder: Remote) -> None:
    listed = coder("agent", "list")
    assert {row["name"]: row["pending"] for row in listed.rows} == {"coder": 0, "planner": None}
    assert coder("agent", "show", "planner").row["name"] == "planner"


def test_a_recipient_that_is_not_there_is_named_with_those_that_are_near(
    coder: Remote, namespace: str
) -> None:
    sent = coder("send", "planer", "x", "--from", "coder")
    assert sent.error["code"] == "UNKNOWN_RECIPIENT"
    assert f"did you mean {'' if namespace == 'default' else 'team/'}planner" in sent.error["hint"]


def test_what_is_not_its_own_is_refused_as_such(coder: Remote) -> None:
    for words in (
        ("inbox", "planner"),
        ("inbox", "planner", "--take", "1"),
        ("inbox", "missing"),
        ("send", "planner", "x", "--from", "planner"),
        ("dlq", "list"),
    ):
        ran = coder(*words)
        assert (ran.code, ran.error["code"]) == (3, "UNAUTHORIZED"), words
