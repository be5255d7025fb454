"""Content of 10 MiB, through every way in and out of a node; and nothing but the content is ever seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relaymesh import Mesh, Retry
from relaymesh.client import Transport
from relaymesh.testing import ManualMesh
from tests.client.raw import Raw
from tests.client.serving import ServerThread
from tests.gateways.filebus.station import Station

TEXT = "t" * (10_485_760 - 2)
BYTES = b"\x01payload " * 1_000_000
TRANSPORTS: list[Transport] = ["websocket", "http"]


def payloads(server: ServerThread) -> int:
    return sum(each.is_file() for each in (server.served.node.path or Path()).glob("payloads/*/*"))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("content", [TEXT, BYTES[:5_000_000]], ids=["text", "bytes"])
def test_a_client_sends_peeks_at_and_receives_it(
    server: ServerThread, transport: Transport, content: Any
) -> None:
    with Mesh(server.url, token=server.token(), transport=transport) as mesh:
        a, b = mesh.agent("a"), mesh.agent("b")
        a.send("b", content)
        assert payloads(server) == 1
        [seen] = b.peek(10)
        assert len(seen.envelope.content) > 4_999_999
        delivery = b.receive(timeout=60)
        assert delivery.content == content
        delivery.nack(Retry("once more"), retryable=False)
        [letter] = mesh.dead_letters()
        assert letter.content == content
        mesh.redrive([letter])
        again = b.receive(timeout=60)
        assert again.content == content
        again.ack()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_workflow_of_a_remote_client_returns_it(server: ServerThread, transport: Transport) -> None:
    two = {"agent": "b", "needs": ["one"], "input": "${{ steps.one.output }}"}
    steps = {"one": {"agent": "b"}, "two": two}
    with Mesh(server.url, token=server.token(), transport=transport) as mesh:
        b = mesh.agent("b")
        task = mesh.submit({"workflow": "w", "steps": steps})
        b.receive(timeout=60).finish(TEXT[:-1_000])
        second = b.receive(timeout=60)
        assert second.input == TEXT[:-1_000]
        second.finish(TEXT)
        assert task.result(timeout=60) == TEXT


def test_text_frames_carry_it(server: ServerThread) -> None:
    with Mesh(server.url, token=server.token()) as mesh:
        mesh.agent("b")
    with Raw(server, server.token(), max_size=None) as raw:
        sent = raw.ask(op="send", messages=[{"from": "a", "to": "b", "content": TEXT[:-2]}])
        assert sent["op"] == "receipts"
        answer = raw.ask(op="receive", mailbox="b", max=1, waitMs=10_000)
        [delivery] = answer["deliveries"]
        assert delivery["message"]["content"] == TEXT[:-2]


def test_the_file_bus_carries_it_both_ways(tmp_path: Path) -> None:
    with ManualMesh(tmp_path / "mesh") as mesh:
        mesh.agent("other")
        bus = Station(tmp_path / "bus", mesh, "b")
        bus.send("one", "other", TEXT[:-2])
        bus.turn()
        assert mesh.agent("other").receive().content == TEXT[:-2]
        mesh.agent("other").send("b", TEXT[:-4])
        bus.turn()
        assert bus.take().content == TEXT[:-4]
        assert len(list((tmp_path / "mesh").glob("payloads/*/*"))) == 2
        bus.bus.close()
