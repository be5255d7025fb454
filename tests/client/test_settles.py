"""Agents of the SDK end steps with results, whatever they registered as; every session carries task mail."""

from __future__ import annotations

import httpx
import pytest

from relaymesh import Mesh
from relaymesh.client import Transport
from relaymesh.errors import MeshError
from tests.client.serving import ServerThread

TRANSPORTS: list[Transport] = ["websocket", "http"]
ONE = {"workflow": "one", "steps": {"do": {"agent": "coder"}}}


def settles(server: ServerThread) -> bool:
    registration = server.served.roster.registration("default/coder")
    assert registration is not None
    return registration.settles


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_agent_of_the_sdk_registers_as_one_that_settles(
    server: ServerThread, transport: Transport
) -> None:
    with Mesh(server.url, token=server.token(), transport=transport) as mesh:
        mesh.agent("coder").register()
        assert settles(server)


def test_an_embedded_agent_does_too() -> None:
    with Mesh(durability="memory") as mesh:
        coder = mesh.agent("coder")
        coder.register()
        task = mesh.submit(ONE)
        delivery = coder.receive(timeout=5)
        assert delivery is not None
        delivery.ack()
        assert task.status() == "SUCCESS"


@pytest.mark.parametrize("how", ["ack", "ack_many", "ack_and_send", "with"])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_its_acks_are_results_also_in_a_mailbox_that_was_registered_otherwise(
    server: ServerThread, transport: Transport, how: str
) -> None:
    with Mesh(server.url, token=server.token(), transport=transport) as mesh:
        coder = mesh.agent("coder")
        other = mesh.agent("other")
        httpx.post(
            f"{server.url}/v1/agents",
            json={"name": "coder"},
            headers={"authorization": f"Bearer {server.token()}"},
        ).raise_for_status()
        assert not settles(server)
        task = mesh.submit(ONE)
        delivery = coder.receive(timeout=5)
        assert delivery is not None
        if how == "ack":
            delivery.ack()
        elif how == "ack_many":
            mesh.ack_many([delivery])
        elif how == "ack_and_send":
            delivery.ack_and_send("other", 1)
            assert other.receive(timeout=5) is not None
        else:
            with delivery:
                pass
        assert task.result(5) is None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_task_mail_is_obeyed_over_every_session(server: ServerThread, transport: Transport) -> None:
    with Mesh(server.url, token=server.token(), transport=transport) as mesh:
        coder = mesh.agent("coder")
        task = mesh.submit(ONE)
        assert coder.receive(timeout=5) is not None
        names = {"task": task.id, "step": "do"}
        coder.send("relaymesh", {**names, "progress": 0.25}, type="task_update")
        assert task.show().step("do").progress == "25%"
        with pytest.raises(MeshError, match="is in a batch"):
            coder.send_many([{"to": "relaymesh", "content": names, "type": "task_complete"}] * 2)
        receipt = coder.send("relaymesh", {**names, "result": [1]}, type="task_complete")
        assert receipt.targets == 0
        assert task.result(5) == [1]
        with pytest.raises(MeshError, match="has ended: SUCCESS"):
            coder.send("relaymesh", names, type="task_complete")
