"""The schemas say what the types say, and what the protocol shows is valid."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.errors import MeshError
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.server.schemas import FOLDER, as_text, schemas
from relaymesh.wire.bodies import ORDERS, order_of
from relaymesh.wire.message import Message
from relaymesh.wire.protocol import delivery_json, message_json, parse_message
from relaymesh.wire.tasks import step_content
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


STEP = {"task": "t-1", "step": "build"}


@pytest.mark.parametrize(
    ("type", "content"),
    [
        ("task_assign", {"agent": "coder", "input": [1]}),
        ("task_assign", {"workflow": {"workflow": "w", "steps": {}}, "key": "k", "again": True}),
        ("task_update", STEP),
        ("task_update", {**STEP, "progress": 0.5, "attempt": 2}),
        ("task_update", {**STEP, "progress": "half"}),
        ("task_complete", {**STEP, "result": {"any": ["thing"]}}),
        ("task_failed", {**STEP, "error": {"code": "other", "message": "no"}, "retryable": True}),
    ],
)
def test_what_the_mesh_obeys_is_valid(type: str, content: dict[str, Any]) -> None:
    envelope = Envelope("m", "default/coder", json.dumps(content).encode(), type=type)
    assert isinstance(order_of(envelope), ORDERS[type])
    validator("task.schema.json").validate(content)
    message = {"to": "relaymesh", "type": type, "content": content}
    validator("message.schema.json").validate(message)


@pytest.mark.parametrize(
    ("type", "content", "field"),
    [
        ("task_update", {"step": "build"}, "`task`"),
        ("task_update", {"task": "t-1"}, "`step`"),
        ("task_update", {**STEP, "task": 7}, r"content\.task"),
        ("task_update", {**STEP, "step": ""}, r"content\.step"),
        ("task_update", {**STEP, "task": "t" * 129}, r"content\.task"),
        ("task_update", {**STEP, "progress": 1.5}, r"content\.progress"),
        ("task_update", {**STEP, "progress": True}, r"content\.progress"),
        ("task_update", {**STEP, "progress": ["half"]}, r"content\.progress"),
        ("task_complete", {**STEP, "attempt": 0}, r"content\.attempt"),
        ("task_complete", {**STEP, "attempt": 1.5}, r"content\.attempt"),
        ("task_complete", {**STEP, "output": 1}, "`output`"),
        ("task_failed", {**STEP, "error": "no"}, r"content\.error"),
        ("task_failed", {**STEP, "error": {"message": "no"}}, r"content\.error.*`code`"),
        ("task_failed", {**STEP, "retryable": "yes"}, r"content\.retryable"),
        ("task_failed", {**STEP, "retriable": True}, "`retriable`"),
        ("task_assign", {"agent": 7}, r"content\.agent"),
        ("task_assign", {"agent": "coder", "key": "k" * 513}, r"content\.key"),
    ],
)
def test_what_the_mesh_does_not_obey_is_not_valid(type: str, content: dict[str, Any], field: str) -> None:
    envelope = Envelope("m", "default/coder", json.dumps(content).encode(), type=type)
    with pytest.raises(MeshError, match=field):
        order_of(envelope)
    message = {"to": "default/relaymesh", "type": type, "content": content}
    assert not validator("message.schema.json").is_valid(message)
    assert validator("message.schema.json").is_valid({**message, "to": "lead"}), "agents agree on their own"


@pytest.mark.parametrize("content", [b"[]", b"null", b'"t-1"', b"{", b"\xff"])
def test_an_order_is_an_object(content: bytes) -> None:
    with pytest.raises(MeshError, match="content of task_complete"):
        order_of(Envelope("m", "default/coder", content, type="task_complete"))
    with pytest.raises(MeshError, match="not bytes"):
        order_of(Envelope("m", "default/coder", content, Encoding.BYTES, type="task_complete"))


def test_the_message_of_a_step_is_valid() -> None:
    message: dict[str, Any] = {"from": "default/relaymesh", "to": "coder", "type": "task_assign"}
    for deadline_at in (0, 1_800_000_000_000):
        content = json.loads(step_content("t-1", "build/3", "release", b'{"n":1}', deadline_at))
        validator("task.schema.json").validate(content)
        validator("message.schema.json").validate({**message, "content": content})
        assert ("deadline" in content) == bool(deadline_at)
    assert not validator("message.schema.json").is_valid({**message, "content": {"task": "t-1"}})


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
