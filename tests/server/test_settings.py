"""The settings of a running server: each of its own has its effect, and changes are told without values."""

from __future__ import annotations

import itertools
import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Mesh
from relaymesh.node.settings_file import SETTINGS_FILE
from relaymesh.sdk import following
from relaymesh.wire.parameters import PARAMETERS
from tests.sdk import test_settings_file as of_nodes
from tests.server.processes import Process, running
from tests.server.serving import serving
from tests.waiting import until

_numbers = itertools.count()


def write(path: Path, **values: Any) -> None:
    (path / SETTINGS_FILE).write_text(json.dumps(values))


def box_of(process: Process) -> str:
    name = f"box{next(_numbers)}"
    process.client.put(f"/v1/mailboxes/{name}")
    process.post("/v1/messages", {"from": "planner", "to": name, "content": 1})
    return name


def received(process: Process, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = process.post(f"/v1/mailboxes/{name}/receive", {})["deliveries"]
    return found


def nacked(process: Process) -> tuple[str, str]:
    """A mailbox, and what became of its message when it failed once."""
    name = box_of(process)
    [delivery] = received(process, name)
    [result] = process.post("/v1/settle", {"nacks": [{"token": delivery["token"]}]})["results"]
    return name, result["outcome"]


def lease_s(process: Process) -> int:
    return -(-int(received(process, box_of(process))[0]["leaseMs"]) // 1_000)


def state_after_a_failure(process: Process) -> str:
    return nacked(process)[1]


def is_retried_in_a_tenth_of_a_second(process: Process) -> bool:
    name, _ = nacked(process)
    time.sleep(0.1)
    return bool(received(process, name))


def expires_after_s(process: Process) -> int:
    name = box_of(process)
    [entry] = process.client.get(f"/v1/mailboxes/{name}").json()["entries"]
    ttl: int = entry["message"]["metadata"]["ttl"]
    return ttl


def beat(process: Process) -> dict[str, Any]:
    process.post("/v1/agents", {"name": "coder"})
    told: dict[str, Any] = process.post("/v1/agents/coder/heartbeat", {})
    return told


def asked_to_beat_every_ms(process: Process) -> int:
    every: int = beat(process)["heartbeatIntervalMs"]
    return every


def state_a_fifth_of_a_second_after_a_heartbeat(process: Process) -> str:
    beat(process)
    time.sleep(0.2)
    state: str = process.client.get("/v1/agents/coder").json()["state"]
    return state


EFFECTS: dict[str, tuple[dict[str, Any], Callable[[Process], Any], Any, Any]] = {
    "ackTimeout": ({"ackTimeout": 7_000}, lease_s, 30, 7),
    "maxRetries": ({"maxRetries": 0}, state_after_a_failure, "retrying", "dead_letter"),
    "retryDelayBase": ({"retryDelayBase": 10}, is_retried_in_a_tenth_of_a_second, False, True),
    "defaultTTL": ({"defaultTTL": 77}, expires_after_s, 3_600, 77),
    "heartbeatInterval": ({"heartbeatInterval": 1_234}, asked_to_beat_every_ms, 30_000, 1_234),
    "heartbeatTimeout": (
        {"heartbeatInterval": 50, "heartbeatTimeout": 150},
        state_a_fifth_of_a_second_after_a_heartbeat,
        "online",
        "offline",
    ),
}
"""What to write, what to look at, and what is seen before and after."""
OTHERS = {"graceful_timeout"}
"""Tested below."""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with running(tmp_path_factory.mktemp("served") / "data") as process:
        yield process


@pytest.mark.parametrize("name", EFFECTS)
def test_a_running_server_takes_it(name: str, process: Process) -> None:
    values, look, before, after = EFFECTS[name]
    write(process.directory)
    process.post("/v1/settings/reload")
    assert look(process) == before
    write(process.directory, **values)
    assert process.post("/v1/settings/reload")["changedFields"] == [
        row.name for row in PARAMETERS if row.name in values
    ]
    assert look(process) == after


def test_every_active_setting_has_a_test_of_its_effect() -> None:
    tested = {*EFFECTS, *OTHERS, *of_nodes.EFFECTS, *of_nodes.THREADED}
    assert tested == {row.name for row in PARAMETERS if row.active}


def test_the_time_of_a_stop_is_the_one_in_force_when_it_begins(tmp_path: Path) -> None:
    with running(tmp_path / "data") as process:
        write(process.directory, graceful_timeout=3)
        process.post("/v1/settings/reload")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert "stopping within 3 s" in process.said


def test_mailboxes_that_are_there_follow_a_reload_and_one_that_chose_does_not(process: Process) -> None:
    write(process.directory)
    process.post("/v1/settings/reload")
    process.client.put("/v1/mailboxes/chosen", json={"settings": {"leaseMs": 4_000}})
    process.client.put("/v1/mailboxes/plain")
    write(process.directory, ackTimeout=9_000)
    process.post("/v1/settings/reload")
    for name, seconds in (("chosen", 4_000), ("plain", 9_000)):
        process.post("/v1/messages", {"from": "planner", "to": name, "content": 1})
        assert seconds - 1_000 < received(process, name)[0]["leaseMs"] <= seconds


def test_an_option_that_is_given_goes_before_the_file_also_at_its_default(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    write(data, maxRetries=7, ackTimeout=9_000)
    (tmp_path / "relaymesh.toml").write_text("[settings]\nackTimeout = 8000\nqueue_capacity = 5\n")
    options = ("--max-retries", "3", "--config", str(tmp_path / "relaymesh.toml"))
    with running(data, *options) as process:
        found = {each["name"]: each for each in process.client.get("/v1/settings").json()["settings"]}
        for name, value, origin in (
            ("maxRetries", 3, "flag"),
            ("ackTimeout", 8_000, "toml"),
            ("queue_capacity", 5, "toml"),
            ("max_attempts", 3, "default"),
        ):
            assert (found[name]["value"], found[name]["origin"]) == (value, origin)


def test_a_wrong_file_changes_nothing_and_is_told_without_values(tmp_path: Path) -> None:
    secret = 987_654
    with running(tmp_path / "data") as process:
        data = process.directory
        write(data, queue_capacity=321)
        process.post("/v1/settings/reload")
        write(data, queue_capacity=secret)
        answer = process.client.post("/v1/settings/reload")
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_SETTINGS")
        assert "queue_capacity" in answer.json()["detail"]
        shown = process.client.get("/v1/settings").json()
        assert {each["name"]: each["value"] for each in shown["settings"]}["queue_capacity"] == 321
        assert "queue_capacity" in shown["problem"]
        loads = process.client.get("/v1/settings/history", params={"limit": 2}).json()["loads"]
        assert [(load["changedFields"], load["refused"]) for load in loads] == [
            (["queue_capacity"], True),
            (["queue_capacity"], False),
        ]
        assert process.stop() == 0
        audit = (data / "server" / "audit.jsonl").read_text()
        lines = [json.loads(line) for line in audit.splitlines()]
        told = [(line["event"], line["detail"]) for line in lines if line["event"].startswith("settings.")]
        assert told == [
            ("settings.loaded", "reload; changed_fields: queue_capacity"),
            ("settings.refused", "reload; changed_fields: queue_capacity"),
        ]
        for text in (audit, (data / "settings-history.json").read_text()):
            assert str(secret) not in text


async def test_any_credential_may_look_and_only_an_admin_of_all_may_do_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        (tmp_path / SETTINGS_FILE).write_text("wrong")
        for client, allowed in (
            (api.client(["read"]), False),
            (api.agent("coder"), False),
            (api.client(["admin"]), False),
            (api.client(["admin"], "*"), True),
        ):
            shown = await client.get("/v1/settings")
            assert shown.status_code == 200
            assert len(shown.json()["settings"]) == len(PARAMETERS)
            assert shown.json()["file"] in ("", SETTINGS_FILE)
            code = (await client.post("/v1/settings/reload")).status_code
            assert code == (400 if allowed else 403)
            assert (await client.get("/v1/settings/history")).status_code == (200 if allowed else 403)
            assert bool((await client.get("/v1/settings")).json()["problem"]) == allowed
        admin = api.client(["admin"], "*")
        for limit in ("0", "-1", "201", "x", "1e3"):
            assert (await admin.get("/v1/settings/history", params={"limit": limit})).status_code == 400


@pytest.mark.parametrize("transport", ["websocket", "http"])
def test_workers_elsewhere_follow(transport: Any, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FOLLOW_S", 0.02)
    write(process.directory, lease_heartbeat_ms=1_500)
    process.post("/v1/settings/reload")
    token = Path(process.announced["token_file"]).read_text().strip()
    with Mesh(process.url, token=token, transport=transport) as mesh:
        mesh.agent("w").handle(lambda _: None)
        until(lambda: mesh._renewer.beat.ms == 1_500)
        write(process.directory, lease_heartbeat_ms=1_600, thread_pool_max=9, payload_max_bytes=50)
        process.post("/v1/settings/reload")
        until(lambda: (mesh._renewer.beat.ms, mesh._pool._max, mesh._limit) == (1_600, 9, 50))
    write(process.directory)
    process.post("/v1/settings/reload")
