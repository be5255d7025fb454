"""The schema of workflows: what compiles is valid, and what has a wrong form is not."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings

from relaymesh.plans.document import compile_plan
from relaymesh.plans.reading import read_yaml
from relaymesh.server.schemas import FOLDER
from tests.plans.documents import RELEASE_PLAN, whole
from tests.plans.test_bad_plans import BAD
from tests.plans.test_good_plans import RELEASE
from tests.plans.test_random_plans import compiled, documents

SCHEMA = json.loads((FOLDER / "workflow.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)
FORM = (
    "unknown field",
    "no name",
    "must be",
    "has no",
    "not both",
    "is missing",
    "is no duration",
    "must have",
)
"""Words of errors about the form of one field, or about which fields there are."""
BEYOND = ("expression", "namespace", "malformed", "followed by", "not 2.0")
"""Words of errors about more than the form. To a schema, 2.0 is a whole number."""


@pytest.mark.parametrize("document", [read_yaml(RELEASE_PLAN), read_yaml(RELEASE), whole().document()])
def test_good_plans_are_valid(document: Any) -> None:
    VALIDATOR.validate(document)
    steps = [{"name": name, **step} for name, step in document["steps"].items()]
    VALIDATOR.validate({**document, "steps": steps})


@settings(max_examples=200, deadline=None)
@given(documents())
def test_what_compiles_is_valid(document: Any) -> None:
    if compiled(lambda: compile_plan(document)) is not None:
        VALIDATOR.validate(_given(document))


def test_bad_plans_of_a_wrong_form_are_not_valid() -> None:
    bad = [each for each in BAD if _is_json(each[1]) and any(word in each[2] for word in FORM)]
    bad = [each for each in bad if not any(word in each[2] for word in BEYOND)]
    passed = [name for name, document, _, _ in bad if VALIDATOR.is_valid(document)]
    assert len(bad) >= 80
    assert passed == []


def _given(document: dict[str, Any]) -> dict[str, Any]:
    """The document without fields that are null: they count as not given."""
    steps = {name: _without_nulls(step) for name, step in document["steps"].items()}
    for step in steps.values():
        for field in ("compensate", "retry", "agent"):
            if isinstance(step.get(field), dict):
                step[field] = _without_nulls(step[field])
    found = _without_nulls({**document, "steps": steps})
    if isinstance(found.get("budget"), dict):
        found["budget"] = _without_nulls(found["budget"])
    return found


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None or name == "default"}


def _is_json(document: Any) -> bool:
    try:
        return bool(json.loads(json.dumps(document, allow_nan=False)) == document)
    except (TypeError, ValueError, RecursionError):
        return False
