"""The key of a request does not depend on how it was written."""

from __future__ import annotations

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from relaymesh.errors import InvalidPlan
from relaymesh.plans.identity import canonical, request_key

NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(codec="utf-8")),
    lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=4), each, max_size=4),
    max_leaves=12,
)


def test_the_order_of_keys_does_not_count() -> None:
    assert request_key({"a": 1, "b": 2}, {"x": 1.0}, "1") == request_key({"b": 2, "a": 1}, {"x": 1}, "1")


def test_plan_input_and_version_count() -> None:
    keys = {
        request_key({}, {}, ""),
        request_key({"a": 1}, {}, ""),
        request_key({}, 1, ""),
        request_key({}, {}, "1"),
    }
    assert len(keys) == 4


def test_the_key_of_a_known_request_never_changes() -> None:
    assert request_key({"workflow": "w"}, {"é": "😀"}, "1") == KNOWN


KNOWN = "bfc6abae07e2b2a171486c87214b30a9257593c55ca030416b1c6fd0f970bb93"


@given(VALUES)
def test_both_encoders_give_the_same_bytes(value: object) -> None:
    try:
        known = rfc8785.dumps(value)  # type: ignore[arg-type]
    except UnicodeEncodeError:  # a key of half a surrogate pair
        return
    assert canonical(value) == known


@pytest.mark.parametrize("value", [2**53 + 1, -(2**60), float("nan"), "\ud83d", {1: 2}, {1}])
def test_what_has_no_canonical_form_is_refused(value: object) -> None:
    with pytest.raises(InvalidPlan) as caught:
        request_key({}, value, "")
    assert len(str(caught.value).splitlines()) == 1
