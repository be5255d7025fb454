"""File names: what is made here can be any id, is always safe, and always finds its way back."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath, PureWindowsPath

from hypothesis import assume, given
from hypothesis import strategies as st

from relaymesh.errors import InvalidEnvelope
from relaymesh.gateways.filebus.names import (
    META,
    PAYLOAD,
    delivery_stem,
    is_send,
    is_worker,
    stand_in,
    stem_of,
    token_of,
)
from relaymesh.wire.envelope import check_id

tokens = st.integers(1, (1 << 62) - 1).filter(lambda token: (token >> 40) <= 99_999_999)
SAFE = re.compile(r"[A-Za-z0-9_%][A-Za-z0-9_.+@=%~-]*\Z")


@given(st.text(min_size=1, max_size=128), tokens)
def test_every_id_makes_a_name_that_is_a_file_in_its_folder(id: str, token: int) -> None:
    try:
        check_id(id)
    except InvalidEnvelope:
        assume(False)
    name = delivery_stem(id, token) + PAYLOAD
    assert SAFE.match(name)
    assert len(os.fsencode(".new-" + name)) <= 255
    assert PurePosixPath("bus", name).parts == ("bus", name)
    assert PureWindowsPath("bus", name).parts == ("bus", name)
    assert not name.startswith((".", "-"))


@given(st.text(min_size=1, max_size=128), tokens)
def test_a_delivery_is_found_again_by_its_name_alone(id: str, token: int) -> None:
    stem = delivery_stem(id, token)
    assert token_of(stem) == token
    assert stem_of(stem + META, META) == stem


@given(st.text(min_size=1, max_size=128), st.text(min_size=1, max_size=128), tokens, tokens)
def test_two_deliveries_never_share_a_name(one: str, other: str, first: int, second: int) -> None:
    assume(first != second)
    assert delivery_stem(one, first).casefold() != delivery_stem(other, second).casefold()


@given(st.text(max_size=140))
def test_no_name_is_both_a_send_and_a_delivery(stem: str) -> None:
    assert not (is_send(stem) and token_of(stem) is not None)


@given(st.text(min_size=1, max_size=128), tokens)
def test_no_delivery_can_be_taken_for_a_send(id: str, token: int) -> None:
    assert not is_send(delivery_stem(id, token))


@given(st.text(max_size=200))
def test_what_is_taken_for_a_send_or_a_worker_is_safe_in_every_shell(stem: str) -> None:
    if is_send(stem) or is_worker(stem):
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+@=-]{0,127}", stem)


@given(st.binary(min_size=1, max_size=255))
def test_any_bytes_have_a_stand_in(name: bytes) -> None:
    assert is_send(stand_in(os.fsdecode(name)))


@given(st.from_regex(r"[a-z]{1,5}~[0-9.]{1,40}", fullmatch=True))
def test_a_token_is_one_that_a_mesh_can_have(stem: str) -> None:
    token = token_of(stem)
    assert token is None or 0 <= token < 1 << 63
