"""An admin of one namespace neither sees nor changes another, on any path and in any call."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from relaymesh.errors import InvalidEnvelope, MeshError, Unauthorized
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.server.app import ROUTES
from relaymesh.server.security.accounts import Account
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.principal import Principal
from relaymesh.server.ws.calls import CALLS, call
from relaymesh.server.ws.operations import Operations
from tests.server.serving import Api, serving

BLUE = "blue-agent"
"""In every name and id of the other namespace. The caller names it, so a refusal may repeat it."""
HIDDEN = "for-blue-alone"
"""In every content and reason there: nothing may show it."""
PARAMETERS = {
    "mailbox": f"blue/{BLUE}",
    "id": f"{BLUE}-1",
    "topic": f"blue/{BLUE}",
    "name": f"blue/{BLUE}",
    "step": BLUE,
    "dead_sequence": "{dead}",
}
BODIES: dict[str, Any] = {
    "/v1/messages": {"to": f"blue/{BLUE}", "from": "red/x", "content": 1},
    "/v1/settle": {"acks": ["{lease}"]},
    "/v1/mailboxes/{mailbox:path}/complete": {"sequence": 1},
    "/v1/mailboxes/{mailbox:path}/ended": {"sequence": 1, "attempt": 1, "deadlineMs": 1},
    "/v1/mailboxes/{mailbox:path}/expect": {"correlationId": "c"},
    "/v1/mailboxes/{mailbox:path}/unexpect": {"correlationId": "c"},
    "/v1/mailboxes/{mailbox:path}/reprioritise": {"priority": 1},
    "/v1/mailboxes/{mailbox:path}/breaker": {"open": True},
    "/v1/topics/{topic:path}/messages": {"from": "red/x", "content": 1},
    "/v1/agents": {"name": f"blue/{BLUE}"},
    "/v1/agents/{name:path}/heartbeat": {},
    "/v1/dead-letters/redrive": {"filter": {}},
    "/v1/dead-letters/purge": {"filter": {}},
    "/v1/delayed/deliver": {},
    "/v1/tasks/{id:path}/steps/{step:path}/answer": {"value": 1, "from": "red/x"},
    "/v1/tasks/{id:path}/signals": {"name": "go"},
    "/v1/tasks/{id:path}/budget": {"tokens": 1},
    "/v1/tasks/{id:path}/rerun": {"fromStep": BLUE},
    "/v1/tasks": {"workflow": "release", "owner": "blue/x"},
    "/v1/workflows": {"workflow": {"workflow": "release", "steps": {}}, "owner": "blue/x"},
    "/v1/schedules": {"name": "nightly", "cron": "0 7 * * *", "workflow": "release", "owner": "blue/x"},
}


async def furnish(api: Api) -> dict[str, str]:
    """A mailbox of blue with a dead letter, a delivery that is out, a waiting and a delayed message."""
    blue = api.client(["admin"], "blue")
    (await blue.post("/v1/agents", json={"name": BLUE})).raise_for_status()
    for number, metadata in enumerate([{"maxRetries": 0}, {}, {}, {"delayMs": 60_000}]):
        id = f"{BLUE}-{number}"
        message = {"from": BLUE, "to": BLUE, "content": HIDDEN, "id": id}
        (await blue.post("/v1/messages", json={**message, "metadata": metadata})).raise_for_status()
    path = f"/v1/mailboxes/{BLUE}/receive"
    first = (await blue.post(path, json={})).json()["deliveries"][0]["token"]
    (await blue.post("/v1/settle", json={"nacks": [{"token": first, "code": "X", "reason": HIDDEN}]})).json()
    lease = (await blue.post(path, json={})).json()["deliveries"][0]["token"]
    dead = (await blue.get("/v1/dead-letters")).json()["deadLetters"][0]["deadSequence"]
    workflow = {"workflow": "release", "steps": {BLUE: {"agent": BLUE, "input": HIDDEN}}}
    (await blue.post("/v1/workflows", json={"workflow": workflow})).raise_for_status()
    message = {"to": BLUE, "content": HIDDEN}
    schedule = {"name": "nightly", "cron": "0 7 * * *", "message": message}
    (await blue.post("/v1/schedules", json=schedule)).raise_for_status()
    task = (await blue.post("/v1/workflows/release/run")).json()["task"]
    return {"dead": str(dead), "lease": lease, "task": task}


async def state(api: Api) -> Any:
    counters = (await api.client(["admin"], "blue").get("/v1/stats")).json()["mailboxes"][f"blue/{BLUE}"]
    assert (counters["deadLetters"], counters["delayed"]) == (1, 1)
    blue = api.client(["admin"], "blue")
    paths = ("/v1/workflows", "/v1/schedules", "/v1/tasks")
    return [counters, *[(await blue.get(path)).json() for path in paths]]


def filled(value: Any, names: dict[str, str]) -> Any:
    text = json.dumps(value)
    for name, word in names.items():
        text = text.replace("{" + name + "}", word)
    return json.loads(text)


async def test_no_path_shows_or_changes_another_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        names = await furnish(api)
        before = await state(api)
        red = api.client(["admin"], "red")
        for route in ROUTES:
            path = route.path
            for name, word in PARAMETERS.items():
                shown = "{task}" if name == "id" and path.startswith("/v1/tasks/") else word
                for form in (f"{{{name}:path}}", f"{{{name}}}"):
                    path = path.replace(form, filled(shown, names))
            body = filled(BODIES.get(route.path), names)
            answer = await red.request(route.method, path, json=body)
            assert answer.status_code < 500
            assert HIDDEN not in answer.text, (route.method, route.path)
            if answer.status_code < 400:
                assert BLUE not in answer.text, (route.method, route.path)
            assert await state(api) == before, (route.method, route.path)


async def test_no_call_shows_or_changes_another_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        names = await furnish(api)
        before = await state(api)
        principal = Principal("t", "", "red", frozenset({"read", "write", "admin"}))
        account = Account("t", SecuritySettings(), 0.0)
        on = Operations(api.served, principal, account, session=None)  # type: ignore[arg-type] # not used
        blue = f"blue/{BLUE}"
        given: dict[str, Any] = {
            "open_mailbox": [blue, None],
            "subscribe": [blue, "x", MailboxSettings()],
            "unsubscribe": [blue],
            "expect": [blue, "c"],
            "unexpect": [blue, "c"],
            "complete": [blue, 1],
            "ended_by": [[[blue, 1, 1, 1]]],
            "register": [blue],
            "drain": [blue],
            "peek": [blue, 10],
            "letters": [[[blue, int(names["dead"])]]],
            "redrive": [[[blue, int(names["dead"])]], None, None],
            "purge": [[[blue, int(names["dead"])]]],
            "preview_purge": [0, 0, blue],
            "purge_old": ["x", 1 << 50, 1 << 50, blue],
            "reprioritise": [blue, 1, None],
            "set_breaker": [blue, True],
            "force_delayed": [None],
            "submit_task": [b'"release@1"', b"null", "", blue],
            "cancel_task": [names["task"]],
            "answer_step": [names["task"], BLUE, b"1", "red/x"],
            "signal_task": [names["task"], "go"],
            "set_budget": [names["task"], 1],
            "rerun_task": [names["task"], BLUE],
            "find_task": [names["task"]],
            "tell_task": [names["task"]],
            "watch_task": [names["task"]],
            "find_tasks": ["blue"],
            "put_workflow": [b"{}", "", blue],
            "find_workflow": ["release", "", "blue"],
            "find_workflows": ["blue"],
            "remove_workflow": ["release", "", "blue"],
            "put_schedule": ["nightly", "0 7 * * *", ["release@1"], "UTC", "one", False, blue],
            "find_schedule": ["nightly", "blue"],
            "find_schedules": ["blue"],
            "hold_schedule": ["nightly", True, "blue"],
            "remove_schedule": ["nightly", "blue"],
            "finish_step": [1],
            "grow_step": [1, b"{}"],
            "fail_step": [1],
            "report_step": [1, "x"],
            "step_bounds": [1],
            "abandon": [[1]],
            "note_run": [blue, "kill", "x"],
        }
        for name, row in CALLS.items():
            shown, error = await _tried(call(on, name, partial(_arguments, given.get(name, []))))
            assert not isinstance(error, InvalidEnvelope), (name, error)  # the test gave wrong arguments
            assert HIDDEN not in str(error), name
            assert BLUE not in msgspec.json.encode(shown).decode(), name
            assert await state(api) == before, (name, row)
        stats = await call(on, "stats", partial(_arguments, []))
        assert (stats.mailboxes, stats.dead_letters) == ({}, 0)
        for name in ("checkpoint", "preview_purge", "purge_old"):
            with pytest.raises(Unauthorized, match="every namespace"):
                await call(on, name, partial(_arguments, given.get(name, [])))


async def _tried(calling: Awaitable[Any]) -> tuple[Any, MeshError | None]:
    try:
        return await calling, None
    except MeshError as error:
        return None, error


def _arguments(values: list[Any], kind: type[Any]) -> Any:
    fields = dict(zip(kind.__struct_encode_fields__, values, strict=False))
    return msgspec.convert(fields if not kind.__struct_config__.array_like else values, kind)
