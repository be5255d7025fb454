"""Bad input: each a clear error that says what to do, and nothing is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from relaymesh import InvalidEnvelope, MeshError, MeshSettings, PayloadTooLarge, UnknownRecipient
from relaymesh.errors import SenderError
from relaymesh.journal import JournalSettings
from relaymesh.testing import ManualMesh, MemoryDisk
from tests.node.inside import node_of

LIMIT = 10_485_760


@pytest.fixture
def mesh() -> Iterator[ManualMesh]:
    """A mesh that must not have written anything when the test is over."""
    disk = MemoryDisk()
    with ManualMesh(disk=disk, settings=MeshSettings(journal=JournalSettings(allocate_bytes=0))) as mesh:
        mesh.agent("planner"), mesh.agent("coder"), mesh.subscribe("topic", "listener")
        core = node_of(mesh).core
        before = core.kernel.state.sequence, core.journal.bytes_written
        yield mesh
        assert (core.kernel.state.sequence, core.journal.bytes_written) == before


def refused(error: pytest.ExceptionInfo[MeshError]) -> None:
    assert error.value.code
    assert error.value.hint
    assert len(str(error.value)) < 1000


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def looped() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


CONTENT = {
    "NaN": math.nan,
    "inf": math.inf,
    "-inf nested": {"a": [1, {"b": -math.inf}]},
    "NaN beside null": [None, math.nan],
    "NaN in a tuple": (1, (math.nan,)),
    "65 levels": nested(65),
    "65 levels of dicts": msgspec.json.decode(b'{"a":' * 65 + b"1" + b"}" * 65),
    "100000 levels": nested(100_000),
    "itself": looped(),
    "lone surrogate": "\ud800",
    "lone surrogate as key": {"\udfff": 1},
    "an object": object(),
    "a function": len,
    "a key that is no string": {(1, 2): 3},
    "a number too long to write": 10**5000,
}


@pytest.mark.parametrize("name", CONTENT)
def test_content_that_json_cannot_carry_is_refused(mesh: ManualMesh, name: str) -> None:
    planner, content = mesh.agent("planner"), CONTENT[name]
    calls: list[Callable[[], object]] = [
        lambda: planner.send("coder", content),
        lambda: planner.send("coder", content, id="x"),
        lambda: planner.send_many([{"to": "coder", "content": 1}, {"to": "coder", "content": content}]),
        lambda: mesh.publish("topic", content),
        lambda: planner.send("coder", 1, extra={"field": content}),
    ]
    for call in calls:
        with pytest.raises(InvalidEnvelope) as error:
            call()
        refused(error)


@pytest.mark.parametrize("content", [b"x" * (LIMIT + 1), "x" * (LIMIT - 1), ["x" * LIMIT]])
def test_a_payload_of_ten_mebibytes_and_one_byte_is_too_large(mesh: ManualMesh, content: Any) -> None:
    planner = mesh.agent("planner")
    calls: list[Callable[[], object]] = [
        lambda: planner.send("coder", content),
        lambda: mesh.publish("topic", content),
    ]
    for call in calls:
        with pytest.raises(PayloadTooLarge, match=str(LIMIT)) as error:
            call()
        refused(error)


def test_a_payload_of_ten_mebibytes_is_not() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", b"x" * LIMIT)
        assert len(coder.receive(timeout=0).content) == LIMIT


def test_64_levels_are_deep_enough() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", nested(64))
        assert coder.receive(timeout=0).content == nested(64)


def test_a_batch_may_not_be_larger_than_its_limit() -> None:
    with ManualMesh(settings=MeshSettings(durability="memory", batch_bytes_max=1000)) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        with pytest.raises(PayloadTooLarge, match="several calls"):
            planner.send_many([{"to": "coder", "content": b"x" * 400} for _ in range(3)])
        assert coder.receive_many(5) == []


NAMES: list[Any] = ["", "/", "a/", "/a", " ", "a b", "a:b", "a*", "a\n", "\x00", "é/x", "x" * 129, "\ud800"]
NO_STRINGS: list[Any] = [None, 7, b"coder", ["coder"], {"a": 1}, math.nan]


@pytest.mark.parametrize("name", [*NAMES, *NO_STRINGS], ids=ascii)
def test_a_malformed_name_is_refused(mesh: ManualMesh, name: Any) -> None:
    planner = mesh.agent("planner")
    for call in (
        lambda: mesh.agent(name),
        lambda: planner.send(name, 1),
        lambda: planner.send_many([{"to": "coder", "content": 1}, {"to": name, "content": 1}]),
        lambda: planner.ask(name, 1, timeout=0),
        lambda: mesh.subscribe("topic", name),
        lambda: mesh.subscribe(name, "listener") if name != "a*" else mesh.agent(name),
        lambda: mesh.publish(name, 1),
        lambda: mesh.publish("topic", 1, sender="" if name is None else name),
        lambda: mesh.unsubscribe("topic", name),
        lambda: mesh.reprioritise(name, 1),
    ):
        with pytest.raises(SenderError) as error:
            call()
        refused(error)


@pytest.mark.parametrize("topic", ["a.", ".a", "a..b", "*", "a.*", "**", "a.**"])
def test_a_topic_to_publish_to_has_no_wildcards_and_no_gaps(mesh: ManualMesh, topic: str) -> None:
    with pytest.raises(InvalidEnvelope, match="topic"):
        mesh.publish(topic, 1)


@pytest.mark.parametrize("pattern", ["a.", "**.a", "a*", "*a", "a.**.b", "***"])
def test_a_pattern_has_its_wildcards_in_their_places(mesh: ManualMesh, pattern: str) -> None:
    with pytest.raises(InvalidEnvelope, match="pattern"):
        mesh.subscribe(pattern, "listener")


def test_an_unknown_recipient_is_an_error(mesh: ManualMesh) -> None:
    planner = mesh.agent("planner")
    for call in (
        lambda: planner.send("nobody", 1),
        lambda: planner.send("other/coder", 1),
        lambda: planner.ask("nobody", 1),
        lambda: mesh.reprioritise("nobody", 1),
    ):
        with pytest.raises(UnknownRecipient, match=r"there is no mailbox") as error:
            call()
        assert "mesh.agent" in error.value.hint


FIELDS: list[tuple[str, list[Any]]] = [
    ("id", ["", "x" * 129, 7, b"x", "a\nb", "\x00", "\ud800", ["a"]]),
    ("type", ["", None, 7, "x" * 129, "a\tb", "heartbeat", "ping", "pong", "ack", "nack"]),
    ("priority", [0, 6, -1, 1.5, True, "highest", "", [], math.nan]),
    ("task", ["", 7, "x" * 513, "a\nb", "\ud800"]),
    ("key", ["", 7, "x" * 513, "\x00"]),
    ("ttl", [-1, math.nan, math.inf, "60", None, True, []]),
    ("correlation_id", ["", 7, "x" * 513]),
    ("reply_to", ["", 7, "a b", ["x"]]),
    ("tags", ["abc", [1], [None], [""], ["x" * 513], ["a"] * 65, 7, ["\ud800"]]),
    ("max_retries", [-1, 1.5, "3", True, 10**9, []]),
    ("trace", ["", 7, "x" * 513]),
    ("extra", ["text", 7, [1], {1: 2}, {"a": math.nan}, {"\ud800": 1}]),
    ("no_such_field", [1]),
    ("from", ["coder"]),
]


@pytest.mark.parametrize(("field", "values"), FIELDS, ids=[field for field, _ in FIELDS])
def test_a_bad_field_is_named(mesh: ManualMesh, field: str, values: list[Any]) -> None:
    planner = mesh.agent("planner")
    for value in values:
        for call in (
            partial(planner.send_many, [{"to": "coder", "content": 1, field: value}]),
            partial(mesh.publish_many, "topic", [{"content": 1, field: value}]),
        ):
            with pytest.raises(InvalidEnvelope, match=field.replace("tags", "tag")) as error:
                call()
            refused(error)


@pytest.mark.parametrize("message", [None, 7, "text", [], {}, {"to": "coder"}, {"content": 1}, {1: 2}])
def test_a_message_of_a_batch_needs_recipient_and_content(mesh: ManualMesh, message: Any) -> None:
    with pytest.raises(InvalidEnvelope, match="message 0 needs"):
        mesh.agent("planner").send_many([message])
    if not (isinstance(message, dict) and "content" in message):
        with pytest.raises(InvalidEnvelope, match="message 0 needs"):
            mesh.publish_many("topic", [message])


def test_a_publish_has_no_recipient(mesh: ManualMesh) -> None:
    with pytest.raises(InvalidEnvelope, match="'to'"):
        mesh.publish_many("topic", [{"to": "coder", "content": 1}])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["\ud800", "a\udfff"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


def test_any_json_value_comes_back_or_is_refused() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")

        @settings(max_examples=300, deadline=None)
        @given(content=st.one_of(json_values, st.binary(max_size=50)))
        @example(content={"a": -0.0, "b": 2**64, "c": -(2**70), "d": 5e-324})
        @example(content=[[]] * 70)
        @example(content="\x00\x7f\u2028")
        def check(content: Any) -> None:
            try:
                planner.send("coder", content)
            except MeshError:
                assert coder.receive_many(5) == []
            else:
                with coder.receive(timeout=0) as delivery:
                    assert delivery.content == content

        check()


anything = st.one_of(
    json_values,
    st.binary(max_size=5),
    st.sampled_from([object(), len, {1, 2}, (1,), 10**400, 1j, math.nan, b"\xff"]),
)
fields = st.sampled_from([field for field, _ in FIELDS] + ["to", "content", "delay_ms", "requires_ack"])


@settings(max_examples=300, deadline=None)
@given(item=st.dictionaries(fields, anything, max_size=4))
def test_any_fields_make_a_message_or_a_clear_error(item: dict[str, Any]) -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        before = mesh.stats().sequence
        message = {"to": "coder", "content": 1, **item}
        try:
            (receipt,) = planner.send_many([message])
        except MeshError:
            assert mesh.stats().sequence == before
        else:
            assert receipt.sequence == before
            assert len(coder.peek()) == 1


def test_what_a_call_shows_may_be_changed_without_harm() -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder", max_retries=1)
        planner.send("coder", 1, id="dies")
        for _ in range(2):
            coder.receive(timeout=60).nack("no", delay_ms=0)
        planner.send("coder", 2, id="waits")
        [shown], [dead] = coder.peek(), mesh.dead_letters()
        for name in ("priority", "attempts", "ready_at", "envelope"):
            with pytest.raises(AttributeError):
                setattr(shown, name, -1)
        dead.failures.clear()
        assert coder.peek()[0].priority == 3
        assert len(mesh.dead_letters()[0].failures) == 2
        assert coder.receive(timeout=1).id == "waits"
