"""A receiver of JSON cannot be shown a field that the sender forged, whichever way the message came in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaymesh import InvalidEnvelope, Mesh
from relaymesh.gateways.filebus import BusSettings, FileBus
from relaymesh.gateways.filebus.directory import make_bus
from relaymesh.kernel.commands import Send
from relaymesh.kernel.envelope import Envelope
from relaymesh.wire.extra import MESSAGE_NAMES, METADATA_NAMES
from tests.client.raw import Raw
from tests.client.serving import ServerThread

FORGED = "forged-by-the-sender"
TOP = sorted(MESSAGE_NAMES - {"metadata"})
FORGERIES: list[dict[str, Any]] = [
    *({name: FORGED} for name in TOP),
    *({"metadata": {name: FORGED}} for name in sorted(METADATA_NAMES)),
]
EVERYTHING = {**dict.fromkeys(TOP, FORGED), "metadata": dict.fromkeys(sorted(METADATA_NAMES), FORGED)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerThread]:
    running = ServerThread(tmp_path / "data")
    yield running
    running.stop()


def forged(id: str, extra: dict[str, Any]) -> Envelope:
    return Envelope(id, "default/planner", b'"hello"', extra=json.dumps(extra).encode())


def http(server: ServerThread, token: str) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {token}"})


def test_the_binary_protocol_refuses_each_forged_field(server: ServerThread) -> None:
    with Mesh(server.url, token=server.token()) as mesh:
        mesh.agent("coder")
        for number, extra in enumerate(FORGERIES):
            with pytest.raises(InvalidEnvelope, match="only the mesh itself writes"):
                mesh._session.execute(Send([("default/coder", [forged(f"m{number}", extra)])]))
        assert mesh.stats().mailboxes["default/coder"].pending == 0


def test_the_sdk_refuses_each_forged_field(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        for extra in FORGERIES:
            with pytest.raises(InvalidEnvelope, match="only the mesh itself writes"):
                mesh.agent("planner").send("coder", "hello", extra=extra)


def test_http_and_the_json_protocol_take_no_forged_lease_and_keep_what_is_the_senders(
    server: ServerThread,
) -> None:
    """A name of the protocol has the protocol's meaning there; a lease's is left out."""
    token = server.token()
    lease = dict.fromkeys(["leaseToken", "attempt", "deadline", "mailbox", "sequence"], FORGED)
    known = {"from": "planner", "to": "coder", "content": 1, "mine": 7}
    message = {**lease, **known, "metadata": {"originId": FORGED, "retryCount": FORGED, "mine": 8}}
    with http(server, token) as client, Raw(server, token) as socket:
        client.put("/v1/mailboxes/coder").raise_for_status()
        assert client.post("/v1/messages", json=message).status_code == 202
        assert socket.ask(op="send", messages=[message])["op"] == "receipts"
        received = client.post("/v1/mailboxes/coder/receive", json={"max": 10})
    assert FORGED not in received.text
    shown = [each["message"] for each in received.json()["deliveries"]]
    assert [(each["mine"], each["metadata"]["mine"]) for each in shown] == [(7, 8), (7, 8)]


def test_no_protocol_shows_the_forged_fields_of_an_old_journal(tmp_path: Path) -> None:
    with Mesh(tmp_path / "data") as mesh:
        mesh.agent("coder")
        letters = [forged(f"old{number}", EVERYTHING) for number in range(3)]
        mesh._session.execute(Send([("default/coder", letters)], True))  # as earlier versions let it in
    server = ServerThread(tmp_path / "data")
    try:
        token = server.token()
        with http(server, token) as client, Raw(server, token) as socket:
            peeked = client.get("/v1/mailboxes/coder")
            received = client.post("/v1/mailboxes/coder/receive", json={"max": 1})
            pushed = socket.ask(op="receive", mailbox="coder", max=1, waitMs=0)
        for text in (peeked.text, received.text, json.dumps(pushed)):
            assert "old" in text
            assert FORGED not in text
        with Mesh(server.url, token=token, transport="http") as mesh:
            files = bus_files(mesh, tmp_path / "bus")
            assert "old" in files
            assert FORGED not in files
    finally:
        server.stop()


def bus_files(mesh: Mesh, place: Path) -> str:
    make_bus(place, ["coder"])
    gateway = FileBus(mesh._session, place, ["coder"], BusSettings())
    try:
        for _ in range(20):
            gateway.turn()
        return "".join(path.read_text() for path in sorted(place.glob("inbox/*/*")))
    finally:
        gateway.close()
