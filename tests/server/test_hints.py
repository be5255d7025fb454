"""What a refusal advises fits what was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Cli
from tests.server.serving import serving


@pytest.mark.parametrize("name", ["billing", "coder"])
async def test_a_subscription_that_is_not_there_is_looked_up_among_subscriptions(
    tmp_path: Path, name: str
) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await api.admin.delete(f"/v1/topics/orders/subscriptions/{name}")
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert "topic list" in answer.json()["hint"]


async def test_an_agent_that_is_not_there_is_looked_up_among_agents(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        answer = await api.admin.get("/v1/agents/nobody")
        assert (answer.status_code, answer.json()["code"]) == (404, "NOT_FOUND")
        assert "agent list" in answer.json()["hint"]


def test_scopes_are_shown_as_they_are_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(tmp_path / "mesh", capsys)
    assert cli("send", "coder", "x", "--create").code == 0
    made = cli.json("token", "create", "--agent", "coder", "--role", "ro").row
    shown = cli("token", "revoke", made["id"], "--yes").out
    assert "agent:coder, read" in shown
    assert "[" not in shown
