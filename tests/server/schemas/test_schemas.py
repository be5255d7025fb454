"""The schemas say what the types say, and what the protocol shows is valid."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.errors import MeshError
from relaymesh.server.schemas import FOLDER, as_text, schemas
from relaymesh.wire.message import Message
from relaymesh.wire.protocol import delivery_json, message_json, parse_message
from tests.kernel.driver import Driver
from tests.server.protocol.test_messages import FULL, UNKNOWN, WRONG

ACK: dict[str, Any] = {
    "id": "ack-1709000001000-xyz789",
    "from": "agent-reviewer-001",
    "to": "agent-developer-001",
    "type": "ack",
    "content": {"originalMessageId": "msg-xxx", "success": True, "timestamp": "2026-03-01T00:00:01.000Z"},
    "metadata": {"correlationId": "msg-xxx"},
}
NACK: dict[str, Any] = {
    "type": "nack",
    "content": {
        "originalMessageId": "msg-xxx",
        "success": False,
        "error": {"code": "AGENT_BUSY", "message": "Agent is currently processing another task"},
    },
}


def validator(name: str) -> Any:
    return jsonschema_rs.Draft202012Validator(json.loads((FOLDER / name).read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", schemas())
def test_the_files_are_what_the_types_say(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == as_text(schemas()[name]), "stale: run python -m relaymesh.server.schemas"


@pytest.mark.parametrize("name", schemas())
def test_each_is_a_schema_of_draft_2020_12(name: str) -> None:
    jsonschema_rs.meta.validate(json.loads((FOLDER / name).read_text(encoding="utf-8")))


def test_there_are_no_other_files() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(schemas())


@pytest.mark.parametrize("name", ["envelope.schema.json", "message.schema.json"])
@pytest.mark.parametrize("message", [FULL, UNKNOWN, ACK, NACK, {"content": None}])
def test_the_protocol_s_own_examples_are_valid(name: str, message: dict[str, Any]) -> None:
    validator(name).validate(message)


@pytest.mark.parametrize(
    "content", [{}, {"originalMessageId": "m", "success": False}, {**ACK["content"], "success": "yes"}]
)
def test_an_ack_that_does_not_say_what_it_acks_is_not_valid(content: dict[str, Any]) -> None:
    assert not validator("message.schema.json").is_valid({**ACK, "content": content})


def test_what_the_mesh_hands_out_is_valid() -> None:
    mesh = Driver()
    sender, box = mesh.agent("sender"), mesh.agent("box")
    mesh.send(box, "m", sender=sender, content=b'{"a":1}', requires_ack=True)
    mesh.send(box, "n", sender=sender, content=b"1", requires_ack=True)
    done, failed = mesh.receive(box, 2)
    validator("message.schema.json").validate(json.loads(delivery_json(done)))
    mesh.ack(done)
    mesh.nack(failed, code="fatal")
    for notice in mesh.receive(sender, 2):
        validator("message.schema.json").validate(json.loads(delivery_json(notice)))


@pytest.mark.parametrize(
    "task",
    [
        {"taskId": "t-1"},
        {"taskId": "t-1", "title": "Bump", "input": [1], "mine": True},
        {"taskId": "t-1", "status": "RUNNING", "progress": 0.5},
        {"taskId": "t-1", "status": "FAILED", "error": {"code": "other", "message": "no"}},
    ],
)
def test_tasks_as_agents_speak_of_them_are_valid(task: dict[str, Any]) -> None:
    validator("task.schema.json").validate(task)


def test_a_task_without_an_id_is_not_valid() -> None:
    assert not validator("task.schema.json").is_valid({"title": "Bump"})


def test_an_agent_is_valid() -> None:
    agent = {"name": "coder", "address": "default/coder", "state": "online", "registered": True, "pending": 0}
    validator("agent.schema.json").validate(agent)


NOT_IN_A_SCHEMA = {
    "an id with a line break",
    "a tag with a tab",
    "no base64",
    "base64 that is a number",
    "a time without a zone",
    "a time that is none",
}
"""What the decoder refuses and a schema cannot say, or says with a format that is only a note."""


@pytest.mark.parametrize("name", [name for name, (message, _) in WRONG.items() if isinstance(message, dict)])
def test_what_the_schema_forbids_the_decoder_refuses_too(name: str) -> None:
    message, _ = WRONG[name]
    assert validator("envelope.schema.json").is_valid(message) == (name in NOT_IN_A_SCHEMA)


FIELD = st.sampled_from([*Message.__struct_encode_fields__, "x"])
VALUE = st.none() | st.booleans() | st.integers(-2, 9) | st.floats(0, 9) | st.sampled_from(["a", "", "high"])


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(FIELD, VALUE, max_size=5))
def test_the_decoder_takes_nothing_that_the_schema_forbids(message: dict[str, Any]) -> None:
    check = ENVELOPE
    try:
        incoming = parse_message(json.dumps(message).encode(), new_id=lambda: "new")
    except MeshError:
        return
    assert message.get("priority") == "high" or check.is_valid(message)
    check.validate(json.loads(message_json(incoming.envelope, "x", 0)) | {"from": "x"})


ENVELOPE = validator("envelope.schema.json")
