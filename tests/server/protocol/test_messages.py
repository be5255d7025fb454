"""Messages as JSON: what comes in is checked once, and goes out again with nothing lost."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.errors import InvalidEnvelope, MeshError, PayloadTooLarge
from relaymesh.kernel.envelope import PRIORITY_BY_TYPE, Encoding, Envelope
from relaymesh.wire.envelope import envelope_json
from relaymesh.wire.extra import check_extra
from relaymesh.wire.protocol import Incoming, delivery_json, message_json, parse_message
from relaymesh.wire.types import MESSAGE_TYPES
from tests.kernel.driver import Driver

FULL: dict[str, Any] = {
    "id": "msg-1709000000000-abc123def",
    "from": "agent-developer-001",
    "to": "agent-reviewer-001",
    "type": "code_review_request",
    "content": {"files": ["a.py"], "why": "größer"},
    "timestamp": "2026-03-01T00:00:00.000Z",
    "priority": 3,
    "metadata": {
        "correlationId": "msg-xxx",
        "ttl": 3600,
        "requiresAck": True,
        "retryCount": 0,
        "maxRetries": 3,
        "tags": ["urgent", "blocking"],
        "replyTo": "agent-developer-002",
        "taskId": "task-1",
        "orderingKey": "k",
        "delayMs": 250,
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    },
}


def parse(message: Any, **options: Any) -> Incoming:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return parse_message(data, new_id=lambda: "new", **options)


def relayed(message: Any) -> dict[str, Any]:
    """What a receiver is given of it."""
    incoming = parse(message)
    out: dict[str, Any] = json.loads(message_json(incoming.envelope, incoming.to or "", 0))
    return out


def test_a_message_with_every_field_comes_out_as_it_went_in() -> None:
    assert relayed(FULL) == FULL


def test_every_field_finds_its_place_in_the_envelope() -> None:
    incoming = parse(FULL)
    assert (incoming.to, incoming.sender, incoming.given_id) == (
        "agent-reviewer-001",
        "agent-developer-001",
        True,
    )
    assert incoming.envelope == Envelope(
        "msg-1709000000000-abc123def",
        "agent-developer-001",
        json.dumps(FULL["content"]).encode(),
        Encoding.JSON,
        "code_review_request",
        3,
        3_600_000,
        250,
        "task-1",
        "k",
        "msg-xxx",
        "agent-developer-002",
        True,
        ("urgent", "blocking"),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        3,
        1_772_323_200_000,
    )


def test_content_is_all_a_message_needs() -> None:
    incoming = parse({"content": None}, ttl_ms=5)
    assert incoming == Incoming(None, None, Envelope("new", "", b"null", ttl_ms=5))


def test_null_is_as_good_as_nothing() -> None:
    nothing = dict.fromkeys(FULL) | {
        "content": 1,
        "metadata": dict.fromkeys(FULL["metadata"]),
    }
    assert parse(nothing).envelope == parse({"content": 1}).envelope


@pytest.mark.parametrize(
    "content", [b' { "a" : [ 1.50e3 , "\\u00e9" ] }', b'"\\ud83d\\ude00"', b"1.0", b"[]"]
)
def test_content_is_kept_byte_for_byte(content: bytes) -> None:
    kept = parse(b'{"content":' + content + b',"to":"x"}').envelope
    assert kept.content == content.strip()
    assert content.strip() in message_json(kept, "x", 0)


UNKNOWN = {
    **FULL,
    "x-hop": [1, {"deep": 1e-7}],
    "version": "9",
    "metadata": {**FULL["metadata"], "sla": {"gold": True}, "a": 10**30},
}


def test_fields_of_a_later_version_survive_the_relay() -> None:
    assert relayed(UNKNOWN) == UNKNOWN
    assert envelope_json(parse(UNKNOWN).envelope, FULL["to"], 0) == UNKNOWN


def test_unknown_numbers_keep_every_digit() -> None:
    out = message_json(
        parse(b'{"content":1,"n":1.000,"metadata":{"m":12345678901234567890123}}').envelope, "x", 0
    )
    assert b'"n":1.000' in out
    assert b'"m":12345678901234567890123' in out


def test_what_only_the_mesh_can_know_is_not_taken_from_a_sender() -> None:
    delivered = {**FULL, "leaseToken": "0.1.7", "attempt": 4, "deadline": "x", "mailbox": "m", "sequence": 9}
    delivered["metadata"] = {**FULL["metadata"], "retryCount": 99, "originId": "forged"}
    assert relayed(delivered) == FULL


def test_bytes_travel_as_base64() -> None:
    message = {"to": "x", "content": "AP8=", "metadata": {"contentEncoding": "base64"}}
    envelope = parse(message).envelope
    assert (envelope.content, envelope.encoding) == (b"\x00\xff", Encoding.BYTES)
    out = relayed(message)
    assert (out["content"], out["metadata"]["contentEncoding"]) == ("AP8=", "base64")


def test_a_delivery_says_what_its_receiver_needs_to_settle_it() -> None:
    mesh = Driver()
    box = mesh.agent("coder")
    mesh.send(box, "m", sender="default/lead", content=b"1")
    mesh.nack(*mesh.receive(box), delay_ms=0)
    (lease,) = mesh.receive(box)
    out = json.loads(delivery_json(lease))
    assert (out["id"], out["from"], out["to"], out["mailbox"]) == ("m", "default/lead", box, box)
    assert (out["leaseToken"], out["attempt"], out["metadata"]["retryCount"]) == ("0.1.2", 2, 1)
    assert out["deadline"] == "2023-11-14T22:13:50.000Z"
    assert out["sequence"] == mesh.entry(box, "m").sequence


@pytest.mark.parametrize("name", sorted(MESSAGE_TYPES))
def test_control_frames_are_never_queued_and_the_others_have_their_priority(name: str) -> None:
    if MESSAGE_TYPES[name].queued:
        assert parse({"content": 1, "type": name}).envelope.priority == PRIORITY_BY_TYPE.get(name, 3)
    else:
        with pytest.raises(InvalidEnvelope, match="never queued"):
            parse({"content": 1, "type": name})


@pytest.mark.parametrize("name", ["acme.deploy", "a.b.c", "x-1.y_2"])
def test_a_dotted_name_is_a_type_of_one_s_own(name: str) -> None:
    assert parse({"content": 1, "type": name}).envelope.type == name


@pytest.mark.parametrize(
    "name", ["", "deploy", ".", "a.", ".a", "a..b", "a b.c", "relaymesh.x", "handshake.x", "a." + "b" * 200]
)
def test_any_other_name_is_no_type(name: str) -> None:
    with pytest.raises(InvalidEnvelope, match="is not a message type"):
        parse({"content": 1, "type": name})


@pytest.mark.parametrize(("given", "counts"), [(1, 1), (5.0, 5), ("urgent", 1), ("LOW", 4), (None, 3)])
def test_a_priority_is_a_number_or_a_name(given: Any, counts: int) -> None:
    assert parse({"content": 1, "priority": given}).envelope.priority == counts


WRONG: dict[str, tuple[Any, str]] = {
    "no content": ({"to": "x"}, "no content"),
    "an array": ([1], "malformed"),
    "an id that is no string": ({"content": 1, "id": 5}, "id: "),
    "an empty id": ({"content": 1, "id": ""}, "id: "),
    "an id with a line break": ({"content": 1, "id": "a\nb"}, "cannot be printed"),
    "a long id": ({"content": 1, "id": "x" * 129}, "id: "),
    "priority 0": ({"content": 1, "priority": 0}, "priority"),
    "priority 2.5": ({"content": 1, "priority": 2.5}, "priority"),
    "priority soon": ({"content": 1, "priority": "soon"}, "priority"),
    "priority true": ({"content": 1, "priority": True}, "priority"),
    "a time without a zone": ({"content": 1, "timestamp": "2026-03-01T00:00:00"}, "timestamp"),
    "a time that is none": ({"content": 1, "timestamp": "noon"}, "timestamp"),
    "a negative ttl": ({"content": 1, "metadata": {"ttl": -1}}, "metadata.ttl"),
    "a ttl that is a string": ({"content": 1, "metadata": {"ttl": "1"}}, "metadata.ttl"),
    "tags that are a string": ({"content": 1, "metadata": {"tags": "a"}}, "metadata.tags"),
    "too many tags": ({"content": 1, "metadata": {"tags": ["a"] * 65}}, "metadata.tags"),
    "a tag with a tab": ({"content": 1, "metadata": {"tags": ["a\tb"]}}, "cannot be printed"),
    "negative retries": ({"content": 1, "metadata": {"maxRetries": -1}}, "maxRetries"),
    "an empty task": ({"content": 1, "metadata": {"taskId": ""}}, "taskId"),
    "metadata that is a list": ({"content": 1, "metadata": []}, "metadata"),
    "no base64": ({"content": "!", "metadata": {"contentEncoding": "base64"}}, "base64"),
    "base64 that is a number": ({"content": 1, "metadata": {"contentEncoding": "base64"}}, "base64"),
    "another encoding": ({"content": 1, "metadata": {"contentEncoding": "gzip"}}, "contentEncoding"),
    "wrong, with an unknown field": ({"content": 1, "x": 1, "priority": 9}, "priority"),
    "wrong metadata, with an unknown field": ({"content": 1, "x": 1, "metadata": {"ttl": "x"}}, "ttl"),
    "half a message": (b'{"content":', "not sound JSON"),
    "no JSON": (b"content", "not sound JSON"),
    "invalid UTF-8": (b'{"content":"\xff"}', "not sound JSON"),
    "invalid UTF-8 in an id": (b'{"content":1,"id":"\xff"}', "not sound JSON"),
    "NaN": (b'{"content":NaN}', "not sound JSON"),
    "1e999": (b'{"content":[1e999]}', "not sound JSON"),
    "duplicate keys": (b'{"content":{"a":1,"a":2}}', "occurs twice"),
    "a lone surrogate": (b'{"content":"\\ud800"}', "not sound JSON"),
    "65 levels": (b'{"content":' + b"[" * 65 + b"]" * 65 + b"}", "nested deeper"),
    "duplicate keys in an unknown field": (b'{"content":1,"x":{"a":1,"a":2}}', "occurs twice"),
    "invalid UTF-8 in an unknown field": (b'{"content":1,"x":"\xff"}', "not sound JSON"),
    "nothing": (b"", "not sound JSON"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_and_named(name: str) -> None:
    message, said = WRONG[name]
    with pytest.raises(InvalidEnvelope) as caught:
        parse(message)
    assert said in caught.value.message
    assert len(str(caught.value)) < 500


def test_64_levels_of_content_are_not_too_deep() -> None:
    assert parse(b'{"content":' + b"[" * 64 + b"]" * 64 + b"}").envelope.content == b"[" * 64 + b"]" * 64


def test_the_limit_is_for_the_content() -> None:
    assert parse({"content": "x" * 98}, limit=100).envelope.size == 100
    for message in ({"content": "x" * 99}, {"content": 1, "extra": "x" * 100}):
        with pytest.raises(PayloadTooLarge):
            parse(message, limit=100)


@pytest.mark.parametrize(
    ("metadata", "ttl_ms", "delay_ms"),
    [
        ({"ttl": 1e308}, 1 << 53, 0),
        ({"ttl": 10**300}, 1 << 53, 0),
        ({"ttl": 1e-9}, 1, 0),
        ({"delayMs": 1e308}, None, 1 << 53),
    ],
)
def test_times_beyond_all_measure_are_cut(metadata: Any, ttl_ms: int | None, delay_ms: int) -> None:
    envelope = parse({"content": 1, "metadata": metadata}).envelope
    assert (envelope.ttl_ms, envelope.delay_ms) == (3_600_000 if ttl_ms is None else ttl_ms, delay_ms)


@pytest.mark.parametrize(
    "moment",
    [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59.999-14:00",
        "1969-12-31T23:59:59.999Z",
        "2000-02-29T00:00:00Z",
    ],
)
def test_any_moment_of_the_calendar_can_be_relayed(moment: str) -> None:
    once = relayed({"content": 1, "timestamp": moment})["timestamp"]
    assert relayed({"content": 1, "timestamp": once})["timestamp"] == once


@pytest.mark.parametrize("delay", [-1, "soon", [], True])
def test_a_delay_that_is_none_counts_as_0_and_is_noted(delay: Any) -> None:
    incoming = parse({"content": 1, "metadata": {"delayMs": delay}})
    assert incoming.envelope.delay_ms == 0
    assert "delayMs" in incoming.notes[0]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [*FULL, *FULL["metadata"], "leaseToken", "x"]


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6), json_values)
def test_any_object_is_a_message_or_refused(fields: dict[str, Any], metadata: Any) -> None:
    message = {"content": 1, **fields, **({"metadata": metadata} if "metadata" in fields else {})}
    try:
        incoming = parse(msgspec.json.encode(message) if _small(message) else message)
    except MeshError:
        return
    sent = msgspec.structs.replace(incoming.envelope, sender="default/x")
    again = parse(message_json(sent, incoming.to or "x", 0))
    assert again.envelope.content == incoming.envelope.content
    assert again.envelope.extra == incoming.envelope.extra


def _small(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except OverflowError:
        return False
    return True


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        parse(data)
    except MeshError:
        return


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.text(min_size=1), json_values, max_size=4),
    st.dictionaries(st.text(), json_values, max_size=4),
)
def test_unknown_fields_come_out_with_their_values(top: dict[str, Any], inner: dict[str, Any]) -> None:
    top = {f"x{name}": value for name, value in top.items()}
    inner = {f"x{name}": value for name, value in inner.items()}
    try:
        out = relayed({"content": 1, **top, "metadata": inner})
    except InvalidEnvelope:
        assert "\\ud" in json.dumps([top, inner])  # a lone surrogate, or a number no reader would take
        return
    assert {name: out[name] for name in top} == top
    assert {name: out["metadata"][name] for name in inner} == inner


def test_a_delay_and_a_task_may_stand_at_the_top() -> None:
    incoming = parse({"to": "coder", "content": 1, "delayMs": 250, "taskId": "t-1"})
    assert (incoming.envelope.delay_ms, incoming.envelope.task, incoming.envelope.extra) == (250, "t-1", None)
    with_metadata = parse({"content": 1, "delayMs": 250, "metadata": {"tags": ["x"], "delayMs": 250}})
    assert (with_metadata.envelope.delay_ms, with_metadata.envelope.tags) == (250, ("x",))
    assert parse({"content": 1, "delayMs": None, "taskId": None}).envelope.task is None


@pytest.mark.parametrize("delay", [-1, "soon", True, [], {}])
def test_a_delay_at_the_top_that_is_none_counts_as_0_and_is_noted(delay: Any) -> None:
    incoming = parse({"content": 1, "delayMs": delay})
    assert incoming.envelope.delay_ms == 0
    assert "counts as 0" in incoming.notes[0]


@pytest.mark.parametrize(
    "twice",
    [
        {"delayMs": 5, "metadata": {"delayMs": 6}},
        {"taskId": "a", "metadata": {"taskId": "b"}},
        {"taskId": 7},
        {"taskId": ""},
    ],
)
def test_two_values_of_one_field_or_a_wrong_one_are_refused(twice: dict[str, Any]) -> None:
    with pytest.raises(InvalidEnvelope, match=r"delayMs|taskId"):
        parse({"content": 1, **twice})


@pytest.mark.parametrize(
    ("message", "name", "meant"),
    [
        ({"metadata": {"delayms": 5}}, "metadata.delayms", "metadata.delayMs"),
        ({"metadata": {"delay_ms": 5}}, "metadata.delay_ms", "metadata.delayMs"),
        ({"metadata": {"corelationId": "x"}}, "metadata.corelationId", "metadata.correlationId"),
        ({"metadata": {"priority": 1}}, "metadata.priority", "priority"),
        ({"ttl": 5}, "ttl", "metadata.ttl"),
        ({"task_id": "t"}, "task_id", "taskId"),
        ({"prioritiy": 1}, "prioritiy", "priority"),
    ],
)
def test_a_name_that_is_nearly_known_is_kept_and_noted(message: Any, name: str, meant: str) -> None:
    incoming = parse({"content": 1, **message})
    assert [note for note in incoming.notes if f"`{name}`" in note and f"`{meant}`" in note]
    assert incoming.envelope.extra is not None, "it survives as it is"


def test_names_of_one_s_own_are_not_noted() -> None:
    assert parse({"content": 1, "x-trace": 1, "metadata": {"customer": 1, "region": 2}}).notes == ()


def test_many_names_that_are_nearly_known_give_few_notes() -> None:
    many = {f"delayMs{n}": n for n in range(10)} | {f"ttl{'_' * n}": n for n in range(1, 40)}
    assert 1 <= len(parse({"content": 1, "metadata": many}).notes) <= 8


def test_a_sender_s_own_fields_cannot_pass_for_a_delay() -> None:
    """The same message means the same whichever way it is sent."""
    for name in ("delayMs", "taskId"):
        with pytest.raises(InvalidEnvelope, match=name):
            check_extra(json.dumps({name: 5}).encode(), 1000)
