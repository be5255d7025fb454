"""Envelopes of strangers: what `build_envelope` could not have made is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaymesh import InvalidEnvelope, PayloadTooLarge
from relaymesh.kernel.envelope import Envelope
from relaymesh.wire.envelope import build_envelope, check_envelope

PLAIN = Envelope("id-1", "default/planner", b'{"n":1}')


def test_a_plain_envelope_passes() -> None:
    check_envelope(PLAIN)
    check_envelope(msgspec.structs.replace(PLAIN, content=b"\xff", encoding=1))


@given(
    content=st.recursive(st.none() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=5),
    fields=st.fixed_dictionaries(
        {},
        optional={
            "priority": st.integers(1, 5),
            "task": st.just("release"),
            "key": st.just("repository"),
            "delay_ms": st.integers(0, 10**9),
            "ttl": st.floats(0, 1e6),
            "correlation_id": st.just("thread-7"),
            "reply_to": st.just("reviewer"),
            "tags": st.just(["a", "b"]),
            "max_retries": st.integers(0, 10),
            "extra": st.just({"hop": 1}),
        },
    ),
)
def test_whatever_is_built_here_passes(content: Any, fields: dict[str, Any]) -> None:
    check_envelope(build_envelope("default/planner", content, id="id-1", **fields))


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": "x" * 129},
        {"id": "bell\a"},
        {"content": b"{"},
        {"content": b'{"a":1,"a":2}'},
        {"content": b"NaN"},
        {"content": b"[" * 70 + b"]" * 70},
        {"content": b'"\xff"'},
        {"encoding": 2},
        {"encoding": -1},
        {"type": ""},
        {"type": "ack"},
        {"type": "x" * 129},
        {"priority": 0},
        {"priority": 6},
        {"ttl_ms": -1},
        {"ttl_ms": 1 << 60},
        {"delay_ms": -5},
        {"delay_ms": 1 << 60},
        {"timestamp_ms": -1},
        {"task": ""},
        {"key": "x" * 513},
        {"correlation_id": "new\nline"},
        {"reply_to": "no spaces please"},
        {"trace": ""},
        {"origin": ""},
        {"tags": ("",)},
        {"tags": ("x",) * 65},
        {"max_retries": -1},
        {"extra": b"[1]"},
        {"extra": b"{"},
    ],
    ids=str,
)
def test_what_could_not_be_built_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidEnvelope):
        check_envelope(msgspec.structs.replace(PLAIN, **change))


@pytest.mark.parametrize("encoding", [0, 1])
def test_too_much_content_is_refused(encoding: int) -> None:
    with pytest.raises(PayloadTooLarge):
        check_envelope(msgspec.structs.replace(PLAIN, encoding=encoding), limit=5)
