"""A server that is killed, paused and restarted under the load of clients that stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaymesh.testing.torture.remote import RemoteTorture
from relaymesh.testing.torture.torture import Settings


@pytest.mark.slow
def test_clients_of_a_killed_server_lose_nothing_and_recover_by_themselves(tmp_path: Path) -> None:
    """Promises 1 to 6, seen from another process: the ledgers of the clients, and a checker of its own."""
    settings = Settings(
        data=tmp_path / "mesh",
        ledgers=tmp_path / "ledgers",
        seconds=1.0,
        seed=7,
        tag="remote",
        workers=2,
        remote=True,
        cycles_min=8,
    )
    verdict = RemoteTorture(settings).run()
    assert verdict.failures == []
    assert {rule: count for rule, count in verdict.broken().items() if count} == {}, verdict.found.words
    assert verdict.kills >= 3
    assert verdict.stops >= 1
    assert verdict.found.messages > 0
