"""The reliability settings of a server: they reach every mailbox for which no other value was chosen."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, InvalidSettings, Mesh
from relaymesh.cli.main import main
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings
from relaymesh.server.applied import FILE, apply_to_known
from relaymesh.server.reliability import ReliabilityConfig
from relaymesh.server.settings import ServerSettings
from tests.client.serving import ServerThread
from tests.server.processes import running
from tests.server.serving import serving

CONFIG = ReliabilityConfig(ack_timeout=7_000, max_retries=5, retry_delay_base=200)
WANTED = (7_000, 5, 200)
PLAIN = (0, None, 1_000)


def of_mailbox(node: Node, name: str) -> tuple[Any, ...]:
    settings = node.core.read(lambda kernel: kernel.state.mailboxes[f"default/{name}"].settings)
    return settings.lease_ms, settings.max_retries, settings.backoff_ms_base


async def test_mailboxes_opened_by_put_subscriptions_and_agents_follow_them(tmp_path: Path) -> None:
    async with serving(tmp_path, settings=ServerSettings(reliability=CONFIG)) as api:
        await api.open("plain")
        await api.admin.put("/v1/mailboxes/chosen", json={"settings": {"maxRetries": 9, "leaseMs": 1_000}})
        await api.admin.put("/v1/topics/orders/subscriptions/billing")
        await api.admin.post("/v1/agents", json={"name": "coder"})
        node = api.served.node
        for name in ("plain", "orders:billing", "coder"):
            assert of_mailbox(node, name) == WANTED, name
        assert of_mailbox(node, "chosen") == (1_000, 9, 200)
        await api.open("chosen")
        assert of_mailbox(node, "chosen") == (1_000, 9, 200), "opening it again changes nothing"


async def test_so_do_those_opened_over_a_websocket(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, reliability=CONFIG)
    server = await asyncio.to_thread(ServerThread, tmp_path, settings=settings)
    try:
        async with AsyncMesh(server.url, token=server.token(["admin"])) as mesh:
            await mesh.agent("plain")
            await mesh.agent("chosen", max_retries=9)
            await mesh.subscribe("orders", "billing")
            assert of_mailbox(server.node, "plain") == WANTED
            assert of_mailbox(server.node, "orders:billing") == WANTED
            assert of_mailbox(server.node, "chosen") == (7_000, 9, 200)
    finally:
        await asyncio.to_thread(server.stop)


def started(path: Path, config: ReliabilityConfig) -> dict[str, tuple[Any, ...]]:
    node = Node(path, MeshSettings())
    try:
        apply_to_known(node.core, path / "server", config)
        return {name: of_mailbox(node, name) for name in ("coder", "chosen", "orders:billing")}
    finally:
        node.close()


def test_mailboxes_that_are_there_follow_the_options_of_every_start(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        mesh.agent("coder")
        mesh.agent("chosen", max_retries=9, lease_ms=1_000, backoff_ms_base=100)
        mesh.subscribe("orders", "billing")
    chosen = (1_000, 9, 100)
    for config, expected in (
        (ReliabilityConfig(), PLAIN),
        (CONFIG, WANTED),
        (CONFIG, WANTED),
        (ReliabilityConfig(max_retries=7), (0, 7, 1_000)),
        (ReliabilityConfig(), PLAIN),
    ):
        found = started(tmp_path, config)
        assert found == {"coder": expected, "chosen": chosen, "orders:billing": expected}, config


def test_a_mailbox_with_a_small_cap_has_no_longer_first_delay(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        mesh.agent("coder", backoff_ms_cap=5_000)
        mesh.agent("chosen")
        mesh.subscribe("orders", "billing")
    assert started(tmp_path, ReliabilityConfig(retry_delay_base=30_000))["coder"] == (0, None, 5_000)


def test_a_note_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        mesh.agent("coder")
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / FILE).write_text("{")
    with pytest.raises(InvalidSettings, match=FILE):
        started(tmp_path, CONFIG)


def test_serve_takes_them_as_options(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running(data) as process:
        process.client.put("/v1/mailboxes/known")
        assert process.stop() == 0
    options = ("--ack-timeout", "7000", "--max-retries", "5", "--heartbeat-interval", "1000")
    with running(data, *options, "--heartbeat-timeout", "3000", "--default-ttl", "60") as process:
        beat = process.post("/v1/agents", {"name": "coder"})
        assert beat["state"] == "online"
        told = process.post("/v1/agents/coder/heartbeat", {})
        assert (told["heartbeatIntervalMs"], told["heartbeatTimeoutMs"]) == (1_000, 3_000)
        process.post("/v1/messages", {"from": "coder", "to": "known", "content": 1})
        [delivery] = process.post("/v1/mailboxes/known/receive", {})["deliveries"]
        assert 6_000 < delivery["leaseMs"] <= 7_000


def test_a_delay_that_is_too_long_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["serve", "--port", "0", "--dir", str(tmp_path / "new"), "--retry-delay-base", "120000"])
    assert code != 0
    assert "retry_delay_base" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
