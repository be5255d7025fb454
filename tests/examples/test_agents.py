"""Agents in two languages, which know of RelayMesh what docs/howto/any-language.md says and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from relaymesh import Mesh, NoAnswer
from relaymesh.client import RemoteSettings
from relaymesh.server.asyncapi import NODE_FRAMES, name_of
from relaymesh.server.security.tokens import TokenFile
from relaymesh.server.ws import text
from tests.client.node_process import NodeProcess
from tests.project.tree import ROOT

AGENTS = ROOT / "examples/agents"
PAGE = ROOT / "docs/howto/any-language.md"
PATIENT = RemoteSettings(unreachable_s=120, backoff_s_min=0.01, backoff_s_max=0.2)
CODE = "one\n" + "x" * 81 + "\nthree"
REVIEW = {"lines": 3, "too long": [2]}


@cache
def node_command() -> list[str] | None:
    """`node` with a global WebSocket, or with the flag that gives it one."""
    found = shutil.which("node")
    for flags in ([], ["--experimental-websocket"]):
        if found is not None:
            asked = [found, *flags, "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"]
            if subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0:
                return [found, *flags]
    return None


def command_of(language: str) -> list[str]:
    if language == "python":
        return [sys.executable, str(AGENTS / "reviewer.py")]
    node = node_command()
    if node is None:
        pytest.skip("no `node` here has a WebSocket: Node 22 does, Node 20 with --experimental-websocket")
    return [*node, "--no-warnings", str(AGENTS / "reviewer.mjs")]


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """Of the agent, and of the test. A node knows from its start on those that were made before."""
    made = TokenFile(tmp_path / "mesh" / "server")
    return {
        "reviewer": made.create(["agent:reviewer"])[1],
        "test": made.create(["admin"], namespace="*")[1],
    }


@pytest.fixture
def nodes(tmp_path: Path, tokens: dict[str, str]) -> Iterator[list[NodeProcess]]:
    """The node that runs now is the last one."""
    nodes = [NodeProcess(tmp_path / "mesh")]
    try:
        yield nodes
    finally:
        nodes[-1].stop()


@pytest.fixture(params=["python", "javascript"])
def agent(
    request: pytest.FixtureRequest, nodes: list[NodeProcess], tokens: dict[str, str]
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command_of(request.param),
        env={**os.environ, "RELAYMESH_URL": nodes[0].url, "RELAYMESH_TOKEN": tokens["reviewer"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def said(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGTERM)
    return process.communicate(timeout=60)[0]


def test_an_agent_answers_extends_fails_and_says_goodbye(
    nodes: list[NodeProcess], tokens: dict[str, str], agent: subprocess.Popen[str]
) -> None:
    with Mesh(nodes[0].url, token=tokens["test"], settings=PATIENT) as mesh:
        planner = mesh.agent("planner")
        mesh.agent("reviewer", lease_ms=600, max_retries=0)
        answer = planner.ask("reviewer", {"code": CODE}, timeout=60)
        assert (answer.content, answer.sender) == (REVIEW, "default/reviewer")
        slow = planner.ask("reviewer", {"code": CODE, "seconds": 2}, timeout=60, id="slow")
        assert slow.content == REVIEW
        with pytest.raises(NoAnswer, match="will not answer"):
            planner.ask("reviewer", {"no": "code"}, timeout=60)
        (letter,) = mesh.dead_letters(receiver="reviewer")
        assert letter.attempts == 1
        planner.send("reviewer", {"code": CODE, "seconds": 60}, type="question")
        while mesh.stats().mailboxes["default/reviewer"].leased == 0:
            assert agent.poll() is None
        output = said(agent)
        assert "slow attempt 1 replied" in output, "its lease was extended over and over"
        assert "goodbye" in output
        returned = mesh.agent("reviewer").receive(timeout=60)
        assert returned.attempt == 1, "a goodbye burns no attempt"


def test_an_agent_keeps_its_work_over_a_kill_of_the_node(
    nodes: list[NodeProcess], tokens: dict[str, str], agent: subprocess.Popen[str]
) -> None:
    with (
        Mesh(nodes[0].url, token=tokens["test"], settings=PATIENT) as mesh,
        ThreadPoolExecutor(1) as asking,
    ):
        planner = mesh.agent("planner")
        mesh.agent("reviewer")
        answer = asking.submit(planner.ask, "reviewer", {"code": CODE, "seconds": 1}, 120)
        while mesh.stats().mailboxes["default/reviewer"].leased == 0:
            assert agent.poll() is None
        nodes.append(nodes[-1].killed_and_started(pause_s=1.0))
        assert answer.result(120).content == REVIEW
        assert planner.ask("reviewer", {"code": CODE}, timeout=120).content == REVIEW
        stats = mesh.stats().mailboxes["default/reviewer"]
        assert (stats.acked, stats.retried, stats.dead) == (2, 0, 0)
    assert said(agent).count("attempt 1 replied") == 2


def test_a_token_that_is_not_accepted_ends_the_agent(nodes: list[NodeProcess]) -> None:
    environment = {**os.environ, "RELAYMESH_URL": nodes[0].url, "RELAYMESH_TOKEN": "rm_0_no"}
    done = subprocess.run(
        command_of("python"), env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "401" in done.stderr


@pytest.mark.parametrize(("language", "name"), [("python", "reviewer.py"), ("js", "reviewer.mjs")])
def test_the_page_shows_the_whole_program(language: str, name: str) -> None:
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert (AGENTS / name).read_text(encoding="utf-8") in blocks, f"{PAGE.name} is stale: copy {name} into it"


def test_the_python_agent_needs_no_relaymesh() -> None:
    program = (AGENTS / "reviewer.py").read_text(encoding="utf-8")
    assert re.findall(r"^(?:from|import) (\w+)", program, re.MULTILINE) == [
        "asyncio", "itertools", "json", "os", "random", "signal", "websockets", "websockets",
    ]  # fmt: skip


def test_the_page_names_the_frames_that_there_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition("| you send |")[2].partition("\n\n")[0]
    sent, answered = zip(*re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)?", table, re.MULTILINE), strict=True)
    client = {name_of(kind) for kind in get_args(text.ClientFrame)}
    node = {name_of(kind) for kind in NODE_FRAMES}
    assert set(sent) == client
    assert {name for name in answered if name} | {"problem", "going_away"} == node


def test_every_frame_that_the_page_shows_is_read_by_the_node_or_written_by_it() -> None:
    """Field by field: the node's own types have them."""
    fields = {name_of(kind): encoded_names(kind) for kind in (*get_args(text.ClientFrame), *NODE_FRAMES)}
    shown = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    frames = [json.loads(part) for block in shown for part in re.split(r"\n(?=\{)", block.strip())]
    assert len(frames) >= 5
    for frame in frames:
        assert set(frame) - {"op"} <= fields[frame["op"]], frame


def encoded_names(kind: type) -> set[str]:
    return {field.encode_name for field in msgspec.structs.fields(kind)}
