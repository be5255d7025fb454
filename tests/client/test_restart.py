"""The node is killed and comes back: nothing receipted is lost, and holders keep what they hold."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Mesh, Unreachable
from relaymesh.client import RemoteSettings
from relaymesh.sdk.delivery import Delivery
from tests.client.node_process import NodeProcess
from tests.client.serving import ServerThread

PATIENT = RemoteSettings(unreachable_s=120, backoff_s_min=0.01, backoff_s_max=0.2)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[list[NodeProcess]]:
    """The node that runs now is the last one."""
    nodes = [NodeProcess(tmp_path / "mesh")]
    try:
        yield nodes
    finally:
        nodes[-1].stop()


def test_a_holder_keeps_its_token_over_a_kill_and_finishes(node: list[NodeProcess]) -> None:
    """Promise 6."""
    with Mesh(node[-1].url, token=node[-1].make_token(), settings=PATIENT) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", {"do": "a long job"})
        with coder.receive(timeout=60) as held:
            token = held.token
            node.append(node[-1].killed_and_started())
            assert mesh.stats().mailboxes["default/coder"].leased == 1
            assert coder.receive_many(10) == [], "it is still held"
        assert (held.settled, held.token, held.attempt) == (True, token, 1)
        assert mesh.stats().mailboxes["default/coder"].pending == 0


def test_deliveries_on_their_way_in_a_kill_come_again_unburned(tmp_path: Path) -> None:
    """The node that starts anew learns from the journal what the session was granted and never saw."""
    with ServerThread(tmp_path / "mesh") as server:
        token = server.token()
        with Mesh(server.url, token=token, settings=PATIENT) as mesh:
            coder = mesh.agent("coder")
            coder.send("coder", 1)
            session = mesh._session
            got = session.receive("default/coder", 1, 30.0)
            session._session._held.drop(got.tokens)  # type: ignore[attr-defined]  # it never arrived
            with server.again(force=True):
                assert coder.receive(timeout=30).attempt == 1
                mesh.close()


def test_after_a_restart_the_deadline_is_what_the_new_node_answers(tmp_path: Path) -> None:
    """Promise 6: it gives one full lease, whatever the one before had promised."""
    with ServerThread(tmp_path / "mesh") as server:
        token = server.token()
        with Mesh(server.url, token=token, settings=PATIENT) as mesh:
            coder = mesh.agent("coder")
            coder.send("coder", 1)
            delivery = coder.receive(timeout=30)
            promised = delivery.extend(3_600_000)
            with server.again(force=True):
                assert delivery.extend(60_000) == delivery.deadline < promised
                mesh.close()


@pytest.mark.slow
def test_kills_under_load_lose_nothing_that_was_receipted(node: list[NodeProcess]) -> None:
    """Senders and a handler over WebSocket; the node is killed in full flight, again and again."""
    handled: Counter[str] = Counter()
    receipted: list[str] = []
    stop = threading.Event()
    with Mesh(node[-1].url, token=node[-1].make_token(), settings=PATIENT) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")

        def handle(delivery: Delivery) -> None:
            handled[delivery.id] += 1

        def send(name: int) -> None:
            n = 0
            while not stop.is_set():
                batch = [{"to": "coder", "content": n, "id": f"{name}-{n + i}"} for i in range(20)]
                receipted.extend(receipt.id for receipt in planner.send_many(batch))
                n += 20

        coder.handle(handle)
        senders = [threading.Thread(target=send, args=(name,)) for name in range(2)]
        for sender in senders:
            sender.start()
        for _ in range(4):
            _until(partial(_grown, receipted, len(receipted) + 200))
            node.append(node[-1].killed_and_started())
        _until(partial(_grown, receipted, len(receipted) + 200))
        stop.set()
        for sender in senders:
            sender.join(120)
            assert not sender.is_alive()
        _until(lambda: len(handled) >= len(receipted))
        assert sorted(handled) == sorted(receipted), "each was handled, and nothing was invented"
        _until(lambda: mesh.stats().mailboxes["default/coder"].pending == 0)
        assert mesh.dead_letters() == []


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_an_answer_given_after_a_restart_reaches_who_asked_before(tmp_path: Path, transport: Any) -> None:
    with ServerThread(tmp_path / "mesh") as server, ThreadPoolExecutor(1) as asking:
        token = server.token()
        asker = Mesh(server.url, token=token, settings=PATIENT, transport=transport)
        helper = Mesh(server.url, token=token, settings=PATIENT)
        planner, coder = asker.agent("planner"), helper.agent("coder")
        answer = asking.submit(planner.ask, "coder", "?", 60)
        question = coder.receive(timeout=30)
        with server.again(force=True):
            coder.answer(question, "!")
            assert answer.result(60).content == "!"
            helper.close()
            asker.close()


@pytest.mark.parametrize("transport", ["websocket", "http"])
@pytest.mark.parametrize("lane", [{}, {"task": "t"}], ids=["no lane", "lane"])
def test_an_answer_that_came_while_its_asker_was_cut_off_waits_for_it(
    tmp_path: Path, transport: Any, lane: dict[str, str]
) -> None:
    """It stands among the others when the expectation is renewed, and a handler of the mailbox runs too."""
    handled: list[Any] = []
    with ServerThread(tmp_path / "mesh") as server, ThreadPoolExecutor(1) as asking:
        asker = Mesh(server.url, token=server.token(), settings=PATIENT, transport=transport)
        asker.agent("coder")
        planner = asker.agent("planner")
        asked = partial(planner.ask, "coder", "?", 60, **lane)
        answer = asking.submit(asked)
        _until(lambda: server.node.core.kernel.state.mailboxes["default/planner"].askers)
        if transport == "websocket":  # HTTP has an order only within one request
            planner.handle(lambda delivery: handled.append(delivery.content))
        server.stop(force=True)
        with Mesh(tmp_path / "mesh") as local:
            coder = local.agent("coder")
            coder.send("planner", "before")
            coder.answer(coder.receive(timeout=5), "!")
            coder.send("planner", "behind")
        with server.again():
            assert answer.result(60).content == "!"
            if transport == "websocket":
                _until(lambda: len(handled) == 2)
                assert sorted(handled) == ["before", "behind"]
            asker.close()


def test_a_node_that_stays_away_is_unreachable_and_the_outcome_unknown(tmp_path: Path) -> None:
    settings = RemoteSettings(unreachable_s=0.2, backoff_s_min=0.01, backoff_s_max=0.05)
    with ServerThread(tmp_path / "mesh") as server:
        mesh = Mesh(server.url, token=server.token(), settings=settings)
        coder = mesh.agent("coder")
        server.stop()
        with pytest.raises(Unreachable, match="may have been accepted") as caught:
            coder.send("coder", 1)
        assert caught.value.retryable
        with pytest.raises(Unreachable):
            coder.receive(timeout=30)
        with server.again():
            coder.send("coder", 2)  # it came back, and so did the mesh
            assert coder.receive(timeout=30).content == 2
            mesh.close()


def _grown(items: list[str], beyond: int) -> bool:
    return len(items) > beyond


def _until(holds: Callable[[], Any], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
