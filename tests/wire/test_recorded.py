"""Bytes that other versions and other languages depend on: recorded once, and the same ever since.

A change of the inside must not move one of them. Where a format is extended, the recordings are written anew
in the commit that says so: see tests/wire/recorded.
"""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import msgspec
import pytest

from relaymesh.server.ws import text
from relaymesh.wire import frames
from tests.wire.recorded import conversation, journal
from tests.wire.recorded.conversation import RECORDINGS, converse, read

BINARY = RECORDINGS[frames.SUBPROTOCOL_MSGPACK][0]
TEXT = RECORDINGS[frames.SUBPROTOCOL_JSON][0]


@pytest.mark.parametrize("subprotocol", list(RECORDINGS))
def test_a_node_answers_each_recorded_frame_with_the_recorded_bytes(subprotocol: str, tmp_path: Path) -> None:
    pairs = read(RECORDINGS[subprotocol][0])
    answers = converse(tmp_path, subprotocol, [said for said, _ in pairs])
    assert _without_session(answers[0], subprotocol) == _without_session(pairs[0][1], subprotocol)
    for (said, recorded), answer in zip(pairs[1:], answers[1:], strict=True):
        assert answer == recorded, said


def _without_session(welcome: bytes, subprotocol: str) -> bytes:
    """The id of a session is drawn by lot."""
    codec = msgspec.msgpack if subprotocol == frames.SUBPROTOCOL_MSGPACK else msgspec.json
    session: str = codec.decode(welcome)["session"]
    return welcome.replace(session.encode(), b"")


def test_a_client_says_what_it_said_when_it_was_recorded() -> None:
    assert [said for said, _ in read(BINARY)] == conversation.binary_frames()
    assert [said for said, _ in read(TEXT)] == conversation.text_frames()


def test_recorded_frames_are_read_and_written_as_they_are() -> None:
    for said, answer in read(BINARY):
        assert frames.encode(frames.decode_client(said)) == said
        assert frames.encode(frames.decode_node(answer)) == answer
    shown = msgspec.json.Decoder(text.Deliveries)
    deliveries = [answer for _, answer in read(TEXT) if b'"op":"deliveries"' in answer]
    assert deliveries
    for answer in deliveries:
        assert msgspec.json.encode(shown.decode(answer)) == answer


def test_journal_and_checkpoints_are_written_in_the_recorded_bytes() -> None:
    for i, (now, then) in enumerate(zip_longest(journal.written(), journal.recorded())):
        assert now == then, f"part {i}"
