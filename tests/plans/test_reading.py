"""Plan text: YAML and JSON give one document, and text that is not plain data is refused."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.errors import InvalidPlan
from relaymesh.plans.document import compile_plan
from relaymesh.plans.reading import read_json, read_plan, read_yaml

YAML = """
workflow: w
deadline: 90m
steps:
  a: {agent: x, input: {n: 1, f: 1.5, t: "yes", b: yes, z: null, u: "é😀"}}
"""
JSON = """{"workflow": "w", "deadline": "90m", "steps": {"a": {"agent": "x",
 "input": {"n": 1, "f": 1.5, "t": "yes", "b": true, "z": null, "u": "é😀"}}}}"""

BOMB = "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


def test_yaml_and_json_give_one_document() -> None:
    assert read_yaml(YAML) == read_json(JSON) == read_plan(YAML.encode()) == read_plan(JSON)


def test_flow_style_yaml_is_no_json() -> None:
    assert read_plan("{workflow: w}") == {"workflow": "w"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "YAML, line 1, column 4: the anchor &a is not allowed: write the value out"),
        ("a: *x", "YAML, line 1, column 4: the alias *x is not allowed: write the value out"),
        ("a: 1\nb: 2\na: 3", "YAML, line 3, column 1: the key 'a' occurs twice"),
        ("a: {b: 1, b: 2}", "YAML, line 1, column 11: the key 'b' occurs twice"),
        (
            "a: !!python/name:os.system x",
            "YAML, line 1, column 4: the tag 'tag:yaml.org,2002:python/name:os.system' is not allowed",
        ),
        ("a: !mine 1", "YAML, line 1, column 4: the tag '!mine' is not allowed"),
        ("a: " + "[" * 64 + "]" * 64, "YAML, line 1, column 67: is nested deeper than 64 levels"),
        ("[" * 100_000, "YAML, line 1, column 65: is nested deeper than 64 levels"),
        ("a: " + "x" * 1_048_574, "the plan has 1048577 bytes; 1048576 are allowed"),
        ("1: a", "YAML, line 1, column 1: the key '1' is a number in YAML: quote it to make it text"),
        ("on: a", "YAML, line 1, column 1: the key 'on' is a boolean in YAML: quote it to make it text"),
        ("? [a]\n: b", "YAML, line 1, column 3: a key must be text"),
        ("<<: {a: 1}", "YAML, line 1, column 1: the key '<<' is a merge in YAML: quote it to make it text"),
        (
            "steps:\n  due: 2026-01-02",
            "YAML, line 2, column 8: due: '2026-01-02' is a date in YAML: quote it to make it text",
        ),
        (
            "deadline: 1:30",
            (
                "YAML, line 1, column 11: deadline: '1:30' is a number with base 60 in YAML: "
                "quote it to make it text"
            ),
        ),
        ("a: =", "YAML, line 1, column 4: a: '=' is a value in YAML: quote it to make it text"),
        ("a: [1", "YAML, line 2, column 1: did not find expected ',' or ']'"),
        ("a: 1\n---\nb: 2", "YAML, line 2, column 1: a second document starts: a plan is one document"),
        ("a: .nan", "plan: a: nan is not JSON"),
        ("- a", "a plan must be an object with workflow and steps, not a list"),
        ("", "a plan must be an object with workflow and steps, not null"),
    ],
)
def test_yaml_that_is_no_plain_data_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        read_yaml(text)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b" 2}', "JSON, line 2, column 6: Expecting ':' delimiter"),
        ('{"a": 1, "a": 2}', "JSON: the key 'a' occurs twice in one object"),
        ('{"a": NaN}', "JSON: NaN is not JSON"),
        ("[" * 100_000, "JSON: is nested deeper than 64 levels"),
        ('{"a": ' + "[" * 64 + "]" * 64 + "}", "plan: is nested deeper than 64 levels"),
        ('{"a": "\\ud83d"}', "plan: a: a text holds half a surrogate pair (half an emoji)"),
        ('{"a": 1e999}', "plan: a: inf is not JSON"),
        (b'{"a": "\xff"}', "the plan is not UTF-8: byte 7"),
        ("[]", "a plan must be an object with workflow and steps, not a list"),
    ],
)
def test_json_that_is_not_sound_is_refused(text: Any, message: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        read_json(text)
    assert caught.value.message == message


@pytest.mark.parametrize("text", ["\x00", "a: \x07", "\ud83d", "a: 0x", "a: -", "&", "!", "]", "a: b: c"])
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        compile_plan(read_plan(text))
    assert len(str(caught.value).splitlines()) == 1
