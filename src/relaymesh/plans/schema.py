"""The JSON Schema of a workflow's document, for editors and for clients in other languages.

It describes the fields and their types. Only the compiler checks rules about more than one field (names,
references, expressions, cycles): each document that compiles is valid by the schema, but not the reverse. A
field that is null counts as not given, and the schema has no nulls.
"""

from __future__ import annotations

from typing import Any

from relaymesh.kernel.bounds import LEASE_MS_MAX, TEXT_LENGTH_MAX
from relaymesh.kernel.envelope import PRIORITY_NAMES
from relaymesh.kernel.tasks.plan import (
    COST_MAX,
    NAME_LENGTH_MAX,
    OPTIONS_MAX,
    STEPS_MAX,
    USAGE_MAX,
    WHOLE_BOUNDS,
)
from relaymesh.plans.budget import MICROS
from relaymesh.plans.shape import TYPES
from relaymesh.plans.step import FIELDS
from relaymesh.plans.work import WORK_FIELDS

__all__ = ["workflow_schema"]

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
STORED = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(@[A-Za-z0-9_][A-Za-z0-9_.+-]*)?$"
MUST: dict[str, tuple[str, ...]] = {"ask": ("question",)}
"""Fields that a kind of step must have, in addition to the one that names the kind."""


def workflow_schema() -> dict[str, Any]:
    """The schema of a document, without the name of its draft."""
    return {
        "title": "A workflow",
        "type": "object",
        "required": ["workflow", "steps"],
        "additionalProperties": False,
        "properties": {
            "workflow": _said(_ref("name"), "The name of the workflow."),
            "version": _text("Part of the identity of a request.", least=0),
            "input": {
                "description": "The declared input: all names are required, others are refused.",
                "type": "object",
                "additionalProperties": {"enum": list(TYPES)},
            },
            "deadline": _said(_ref("duration"), "How long a task may take, counted from its submit."),
            "budget": _ref("budget"),
            "steps": {
                "description": "The steps by name, or a list of steps with names.",
                "anyOf": [_by_name(), _listed()],
            },
        },
        "$defs": _definitions(),
    }


def _by_name() -> dict[str, Any]:
    return {
        "type": "object",
        "minProperties": 1,
        "maxProperties": STEPS_MAX,
        "propertyNames": _ref("step_name"),
        "additionalProperties": {"oneOf": [_ref(kind) for kind in FIELDS]},
    }


def _listed() -> dict[str, Any]:
    return {
        "type": "array",
        "minItems": 1,
        "maxItems": STEPS_MAX,
        "items": {"oneOf": [_ref(f"named_{kind}") for kind in FIELDS]},
    }


def _definitions() -> dict[str, Any]:
    fields = _fields()
    steps: dict[str, Any] = {}
    for kind, names in FIELDS.items():
        properties = {field: fields[field] for field in names}
        required = [kind, *MUST.get(kind, ())]
        steps[kind] = _object(properties, required)
        steps[f"named_{kind}"] = _object({"name": _ref("step_name"), **properties}, ["name", *required])
    return {**_values(), **steps}


def _values() -> dict[str, Any]:
    """Values that several fields have."""
    seconds = LEASE_MS_MAX // 1000
    fields = _fields()
    whole = {
        field: {"type": "integer", "minimum": least, "maximum": most}
        for field, (least, most) in WHOLE_BOUNDS.items()
        if field in ("max_attempts", "max_abandoned")
    }
    cost = {"type": "number", "exclusiveMinimum": 0, "maximum": COST_MAX // MICROS}
    tokens = {"type": "integer", "minimum": 1, "maximum": USAGE_MAX}
    return {
        "name": {"type": "string", "pattern": NAME, "maxLength": NAME_LENGTH_MAX},
        "step_name": {"allOf": [_ref("name"), {"not": {"enum": ["fail", "continue"]}}]},
        "expression": {"type": "string", "pattern": r"^\$\{\{[\s\S]*\}\}$"},
        "duration": {
            "description": "500ms, 20s, 90m, 8h, 1d, or a number of seconds.",
            "anyOf": [
                {"type": "string", "pattern": "^[0-9]{1,15}(ms|s|m|h|d)$"},
                {"type": "number", "minimum": 0.001, "maximum": seconds},
            ],
        },
        "retry": _object(whole, []),
        "budget": {**_object({"cost_usd": cost, "tokens": tokens}, []), "minProperties": 1},
        "compensate": _object({field: fields[field] for field in WORK_FIELDS}, []),
    }


def _fields() -> dict[str, Any]:
    """Each field of a step."""
    least, most = WHOLE_BOUNDS["priority"]
    named = {"type": "string", "pattern": "^[A-Za-z]+$", "examples": list(PRIORITY_NAMES)}
    agent = {"type": "string", "minLength": 1}
    capability = _object({"capability": _text("What the agent must be able to do.")}, ["capability"])
    until = _object({"until": {"type": "string", "description": "A timestamp of RFC 3339."}}, ["until"])
    options = {"type": "array", "items": _text("An answer."), "minItems": 1, "maxItems": OPTIONS_MAX}
    return {
        "agent": {"description": "The agent that does the step.", "anyOf": [agent, capability]},
        "ask": _said(agent, "The agent that is asked."),
        "wait": {
            "description": "The step waits: a duration, an expression, or until a timestamp.",
            "anyOf": [_ref("duration"), _ref("expression"), until],
        },
        "signal": _said(_ref("name"), "The step waits for a signal of this name."),
        "workflow": {
            "description": "The step goes on as a stored workflow: NAME or NAME@VERSION.",
            "type": "string",
            "pattern": STORED,
        },
        "input": {"description": "What the agent or the workflow receives. May hold expressions."},
        "question": {"description": "What is asked. May hold expressions."},
        "options": {"description": "The answers that count.", "uniqueItems": True, **options},
        "default": {"description": "The output of the step if the time is over. Needs a timeout."},
        "needs": {"description": "The steps that must end first.", "type": "array", "items": _ref("name")},
        "when": _said(_ref("expression"), "The step is skipped if it gives false."),
        "for_each": _said(_ref("expression"), "A list: the step is done once for each item."),
        "parallel": {
            "description": "How many items of for_each may be out at once.",
            "type": "integer",
            "minimum": 1,
            "maximum": WHOLE_BOUNDS["parallel"][1],
        },
        "timeout": _said(_ref("duration"), "How long the step may take."),
        "attempt_timeout": _said(_ref("duration"), "How long one attempt may take."),
        "lease": _said(_ref("duration"), "The lease of its messages."),
        "retry": _said(_ref("retry"), "How often the step may fail, and how often its holder may be lost."),
        "priority": {"anyOf": [{"type": "integer", "minimum": least, "maximum": most}, named]},
        "key": _text("The lane of its messages."),
        "on_failure": _said(_ref("name"), "fail, continue, or the step that runs if this one fails."),
        "grows": {"description": "Whether the agent may end it with more steps.", "type": "boolean"},
        "compensate": _said(_ref("compensate"), "What undoes the step, if the task ends without success."),
    }


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found


def _text(description: str, least: int = 1) -> dict[str, Any]:
    return {"description": description, "type": "string", "minLength": least, "maxLength": TEXT_LENGTH_MAX}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _said(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, **schema}
