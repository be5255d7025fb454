"""What a node does not let in, and what a client says to that."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from relaymesh import (
    AsyncMesh,
    InvalidSettings,
    MailboxFull,
    Mesh,
    MeshSettings,
    PayloadTooLarge,
    Unauthorized,
    Unreachable,
)
from relaymesh.client import RemoteSettings, Transport, link
from tests.client.serving import ServerThread

TRANSPORTS: list[Transport] = ["websocket", "http"]
IMPATIENT = RemoteSettings(connect_s=0.3, backoff_s_min=0.01, backoff_s_max=0.05)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_wrong_token_is_refused_at_once(server: ServerThread, transport: Transport) -> None:
    with pytest.raises(Unauthorized):
        Mesh(server.url, token="rm_wrong", transport=transport)
    with pytest.raises(Unauthorized):
        Mesh(server.url, transport=transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_an_awaited_mesh_is_refused_the_same_way(server: ServerThread, transport: Transport) -> None:
    with pytest.raises(Unauthorized):
        await AsyncMesh(server.url, token="rm_wrong", transport=transport).open()


def test_a_token_that_is_revoked_ends_the_mesh(server: ServerThread) -> None:
    secret = server.token(["write", "read"])
    with Mesh(server.url, token=secret, settings=IMPATIENT) as mesh:
        mesh.agent("coder")
        server.tokens.revoke(server.tokens.read()[-1].id)
        with pytest.raises(Unauthorized):
            _again_and_again(lambda: mesh.agent("coder"))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_agent_sends_and_receives_in_no_other_name(server: ServerThread, transport: Transport) -> None:
    with Mesh(server.url, token=server.token()) as admin:
        admin.agent("planner")
        admin.agent("coder").send("coder", 0)
    with Mesh(server.url, token=server.token(["agent:planner"]), transport=transport) as mesh:
        mesh.agent("planner").send("coder", 1)
        with pytest.raises(Unauthorized):
            mesh.agent("coder")
        planner = mesh.agent("planner")
        planner.address = "default/coder"
        with pytest.raises(Unauthorized):
            planner.send("coder", "in the name of another")
        with pytest.raises(Unauthorized):
            planner.receive(timeout=0)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_namespace_is_where_plain_names_lie(server: ServerThread, transport: Transport) -> None:
    token = server.token(["write", "read"], "team")
    with Mesh(server.url, token=token, transport=transport) as mesh:
        coder = mesh.agent("coder")
        assert coder.address == "team/coder"
        coder.send("coder", "ours", reply_to="planner")
        delivery = coder.receive(timeout=30)
        assert (delivery.sender, delivery.reply_to) == ("team/coder", "team/planner")
        with pytest.raises(Unauthorized):
            mesh.agent("default/coder")
        assert set(mesh.stats().mailboxes) == {"team/coder"}


def test_another_version_of_the_protocol_is_refused(
    server: ServerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PROTOCOL", "9.0")
    with pytest.raises(InvalidSettings, match="speaks protocol"):
        Mesh(server.url, token=server.token())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_where_nobody_listens_is_unreachable(transport: Transport) -> None:
    with pytest.raises(Unreachable):
        Mesh("http://127.0.0.1:9", token="any", transport=transport, settings=IMPATIENT)


def test_a_batch_larger_than_a_frame_is_refused_here(server: ServerThread) -> None:
    with Mesh(server.url, token=server.token()) as mesh:
        coder = mesh.agent("coder")
        big = {"to": "coder", "content": b"x" * 9_000_000}
        with pytest.raises(PayloadTooLarge, match="frame"):
            coder.send_many([big, big])
        coder.send_many([big])
        assert len(coder.receive(timeout=30).content) == 9_000_000


def test_settings_that_do_not_fit_the_place_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="remote mesh"):
        Mesh("http://127.0.0.1:9", durability="synced")
    with pytest.raises(InvalidSettings, match="remote mesh"):
        Mesh("http://127.0.0.1:9", settings=MeshSettings())
    with pytest.raises(InvalidSettings, match="directory"):
        Mesh("here", token="any")
    with pytest.raises(InvalidSettings, match="directory"):
        Mesh("here", transport="http")
    with pytest.raises(InvalidSettings, match="directory"):
        Mesh("here", settings=RemoteSettings())
    with pytest.raises(InvalidSettings, match="transport"):
        Mesh("http://127.0.0.1:9", transport="pigeon")  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="unreachable_s"):
        RemoteSettings(unreachable_s=0)


def _again_and_again(call: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        call()
        time.sleep(0.02)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_full_subscription_of_an_agent_refuses_nobodys_publish(
    server: ServerThread, transport: Transport
) -> None:
    """Promise 10."""
    secret = server.token(["agent:greedy"])
    with Mesh(server.url, token=secret, transport=transport) as mesh:
        greedy = mesh.subscribe("**", "greedy", capacity=1, dead_letters_max=2, overflow="reject")
    with Mesh(server.url, token=server.token(), transport=transport) as mesh:
        victim = mesh.subscribe("news", "victim")
        receipts = [mesh.publish("news", n) for n in range(5)]
        assert [receipt.targets for receipt in receipts] == [2, 2, 2, 1, 1]
        assert len(victim.receive_many(9)) == 5
        stats = mesh.stats().mailboxes[greedy.address]
        assert (stats.pending, stats.dead_letters, stats.skipped) == (1, 2, 2)
        assert stats.suspended == "dead_letters_full"
        assert mesh.purge_dead_letters(receiver="**:greedy") == 2
        assert mesh.publish("news", 5).targets == 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_with_the_scope_write_it_may_reject(server: ServerThread, transport: Transport) -> None:
    """Promise 10. What an operator chose, the agent does not undo by subscribing again."""
    with Mesh(server.url, token=server.token(["write", "read"]), transport=transport) as mesh:
        mesh.subscribe("news", "strict", capacity=1)
    with Mesh(server.url, token=server.token(["agent:strict"]), transport=transport) as mesh:
        mesh.subscribe("news", "strict", capacity=1)
    with Mesh(server.url, token=server.token(), transport=transport) as mesh:
        mesh.publish("news", 1)
        with pytest.raises(MailboxFull):
            mesh.publish("news", 2)
