"""Agents of the SDK join the mesh: they declare a role, and the session keeps them online."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, InvalidEnvelope, Mesh, PayloadTooLarge
from relaymesh.client import RemoteSettings, Transport
from relaymesh.server.reliability import ReliabilityConfig
from relaymesh.testing import ManualClock, ManualMesh
from tests.client.serving import ANY_PORT, ServerThread
from tests.waiting import until

TRANSPORTS: list[Transport] = ["websocket", "http"]
OFTEN = replace(ANY_PORT, reliability=ReliabilityConfig(heartbeat_interval=50, heartbeat_timeout=90_000))
IMPATIENT = RemoteSettings(backoff_s_min=0.01, backoff_s_max=0.05)


def state(server: ServerThread, agent: str) -> str:
    return server.served.roster.state(f"default/{agent}", server.served.now)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_agent_that_registers_is_online_with_its_role(server: ServerThread, transport: Transport) -> None:
    with Mesh(server.url, token=server.token(), transport=transport) as mesh:
        coder = mesh.agent("coder")
        assert state(server, "coder") == "unknown"
        coder.register(role="developer", capabilities=["python"], metadata={"pid": 7})
        assert state(server, "coder") == "online"
        assert server.served.roster.role_of("default/coder") == "developer"
        known = server.served.roster.registration("default/coder")
        assert known is not None
        assert (known.capabilities, known.metadata) == (("python",), b'{"pid":7}')


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_awaited_agent_does_the_same(server: ServerThread, transport: Transport) -> None:
    async with AsyncMesh(server.url, token=server.token(), transport=transport) as mesh:
        await (await mesh.agent("coder")).register(role="reviewer")
        assert state(server, "coder") == "online"
        assert server.served.roster.role_of("default/coder") == "reviewer"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_session_keeps_the_agent_online_without_a_call(tmp_path: Path, transport: Transport) -> None:
    clock = ManualClock()
    with (
        ServerThread(tmp_path / "data", clock=clock, settings=OFTEN) as server,
        Mesh(server.url, token=server.token(), transport=transport) as mesh,
    ):
        mesh.agent("coder").register()
        clock.advance(91)
        until(lambda: state(server, "coder") == "online")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_it_is_online_again_after_a_restart_of_the_node(tmp_path: Path, transport: Transport) -> None:
    server = ServerThread(tmp_path / "data", settings=OFTEN)
    try:
        with Mesh(server.url, token=server.token(), transport=transport, settings=IMPATIENT) as mesh:
            mesh.agent("coder").register(role="developer")
            server = server.again()
            until(lambda: state(server, "coder") == "online")
    finally:
        server.stop()


def test_a_mesh_that_is_closed_takes_its_agents_offline(server: ServerThread) -> None:
    with Mesh(server.url, token=server.token()) as mesh:
        mesh.agent("coder").register()
        assert state(server, "coder") == "online"
    assert state(server, "coder") == "offline"


def test_an_embedded_agent_joins_too_and_a_server_knows_it_later(tmp_path: Path) -> None:
    with Mesh(tmp_path / "data") as mesh:
        mesh.agent("coder").register(role="tester", capabilities=["fuzzing"])
    with ServerThread(tmp_path / "data") as server:
        assert (state(server, "coder"), server.served.roster.role_of("default/coder")) == (
            "registered",
            "tester",
        )


async def test_an_embedded_awaited_agent_joins_too(tmp_path: Path) -> None:
    async with AsyncMesh(tmp_path / "data") as mesh:
        await (await mesh.agent("coder")).register(role="tester")
    with ServerThread(tmp_path / "data") as server:
        assert server.served.roster.role_of("default/coder") == "tester"


@pytest.mark.parametrize(
    "wrong",
    [
        {"role": "emperor"},
        {"role": 7},
        {"role": ["developer"]},
        {"capabilities": "python"},
        {"capabilities": [7]},
        {"capabilities": 7},
        {"capabilities": ["x"] * 65},
        {"metadata": [1]},
        {"metadata": {"x": float("nan")}},
        {"metadata": {"x": "y" * 70_000}},
    ],
)
@pytest.mark.parametrize("where", ["embedded", *TRANSPORTS])
def test_what_an_agent_cannot_be_is_refused_and_changes_nothing(
    server: ServerThread, where: Any, wrong: dict[str, Any]
) -> None:
    with (
        ManualMesh() if where == "embedded" else Mesh(server.url, token=server.token(), transport=where)
    ) as mesh:
        coder = mesh.agent("coder")
        with pytest.raises((InvalidEnvelope, PayloadTooLarge)):
            coder.register(**wrong)
        coder.register(role="agent")
