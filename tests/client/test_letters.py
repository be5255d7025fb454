"""Dead letters over HTTP: all of them, however few go into one request."""

from __future__ import annotations

import pytest

from relaymesh import Mesh
from relaymesh.wire import api
from tests.client.serving import ServerThread


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "LETTERS_MAX", 2)


def test_more_letters_than_one_request_takes_are_listed_redriven_and_purged(server: ServerThread) -> None:
    with Mesh(server.url, token=server.token(), transport="http") as mesh:
        agents = [mesh.agent("coder"), mesh.agent("tester")]
        for i in range(5):
            agents[i % 2].send(agents[i % 2].name, i)
        for agent in agents:
            for delivery in agent.receive_many(5, 5):
                delivery.nack(retryable=False)
        assert sorted(letter.content for letter in mesh.dead_letters()) == [0, 1, 2, 3, 4]
        assert len(mesh.redrive(receiver="coder")) == 3
        assert mesh.purge_dead_letters(receiver="tester") == 2
        assert not mesh.dead_letters()
