"""A secret given to every agent is found in none of the places that people and programs read."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agents.team_up import command, rows, team_up
from tests.waiting import until

CANARY = "canary-7f3a91c2d4e5b6"
TEAM = """\
[agents.careful]
command = ["python3", "careful.py"]
secrets = { API_KEY = "env:CANARY" }

[agents.careless]
command = ["python3", "careless.py"]
secrets = { API_KEY = "env:CANARY", OTHER = "file:canary.txt" }
"""
CAREFUL = """\
import json, os, sys
request = json.load(sys.stdin)
print(json.dumps({"length": len(os.environ["API_KEY"]), "token": len(os.environ["RELAYMESH_TOKEN"])}))
"""
CARELESS = """\
import os, sys, time
print("my key is", os.environ["API_KEY"], file=sys.stderr)
print(os.environ["RELAYMESH_TOKEN"], file=sys.stderr, flush=True)
time.sleep(0.5)
sys.exit(f"failed with {os.environ['API_KEY']}")
"""


def test_a_canary_secret_is_found_nowhere(tmp_path: Path) -> None:
    (tmp_path / "relaymesh.toml").write_text(
        TEAM.replace("canary.txt", str(tmp_path / "canary.txt")), encoding="utf-8"
    )
    (tmp_path / "careful.py").write_text(CAREFUL, encoding="utf-8")
    (tmp_path / "careless.py").write_text(CARELESS, encoding="utf-8")
    (tmp_path / "canary.txt").write_text(CANARY, encoding="utf-8")
    said = []
    with team_up(tmp_path, CANARY=CANARY) as up:
        for agent in ("careful", "careless"):
            plan = {"workflow": agent, "steps": {"work": {"agent": agent, "retry": {"max_attempts": 1}}}}
            (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
            rows(tmp_path, "submit", "plan.json")
        until(lambda: up.of("step.done") and up.of("step.failed"))
        arguments = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
        said += [part.decode("utf-8", "replace") for part in arguments]
        for words in (
            ["ps"],
            ["logs"],
            ["logs", "careless"],
            ["task", "list"],
            ["audit", "list"],
            ["dlq", "list"],
        ):
            done = command(tmp_path, *words, "--json")
            said.append(done.stdout + done.stderr)
        [task] = [each for each in rows(tmp_path, "task", "list") if each["workflow"] == "careless"]
        said += [command(tmp_path, "task", "show", task["id"], "--story").stdout]
        tokens = [path.read_text() for path in (tmp_path / ".relaymesh/supervisor/tokens").glob("*.token")]
        assert len(tokens) == 2
        assert up.stop() == 0
        said.append(json.dumps(up.events))
    said.append(command(tmp_path, "journal", "cat", "--json").stdout)
    assert "[secret]" in "".join(said)  # it was written, and blotted out
    files = [path for path in (tmp_path / ".relaymesh").rglob("*") if path.is_file()]
    texts = [path.read_bytes().decode("utf-8", "replace") for path in files] + said
    for secret in (CANARY, *[token.strip() for token in tokens]):
        found = [
            text[max(0, text.index(secret) - 200) : text.index(secret)] for text in texts if secret in text
        ]
        assert found == []


def test_the_token_of_an_agent_acts_as_that_agent_alone_and_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "relaymesh.toml").write_text(TEAM.partition("[agents.careless]")[0], encoding="utf-8")
    (tmp_path / "careful.py").write_text(CAREFUL, encoding="utf-8")
    with team_up(tmp_path, CANARY=CANARY) as up:
        url = up.keeper()["url"]
        token = (tmp_path / ".relaymesh/supervisor/tokens/careful.token").read_text(encoding="utf-8")
        [row] = rows(tmp_path, "token", "list")
        assert (row["scopes"], row["expires_at"] is not None) == (["agent:careful"], True)
        refused = _curl(url, token, "/v1/dead-letters")
        assert refused == 403
        assert up.stop() == 0
    assert rows(tmp_path, "token", "list") == []
    assert list((tmp_path / ".relaymesh/supervisor/tokens").glob("*.token")) == []


def _curl(url: str, token: str, path: str) -> int:
    import httpx

    return httpx.get(f"{url}{path}", headers={"authorization": f"Bearer {token}"}, timeout=30).status_code
