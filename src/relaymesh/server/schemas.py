"""The JSON Schemas of the protocol (draft 2020-12), made from the types that decode it.

`python -m relaymesh.server.schemas` writes them beside the package, where the wheel takes them along and
`GET /schemas/{name}` serves them. A test compares the files with what the types say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from relaymesh.plans.schema import workflow_schema
from relaymesh.wire.api import AgentBody
from relaymesh.wire.bodies import ORDERS, AckContent, NackContent, TaskAssigned
from relaymesh.wire.message import Message, Metadata

DRAFT = "https://json-schema.org/draft/2020-12/schema"
FOLDER = Path(__file__).resolve().parent.parent / "schemas"

SCHEMA_FILES = (
    "envelope.schema.json",
    "message.schema.json",
    "task.schema.json",
    "agent.schema.json",
    "workflow.schema.json",
)

OPEN = (Message, Metadata)
"""Types whose unknown fields are kept: to a schema they are open, whatever the decoder says."""
BY_TYPE: dict[str, type] = {"ack": AckContent, "nack": NackContent}
MESH = "^([^/]*/)?relaymesh$"
"""The address of the mesh itself, which understands the content of tasks. Agents may agree on another one."""


def schema_of(kind: type, title: str) -> dict[str, Any]:
    """The schema of one type, on its own."""
    schema = msgspec.json.schema(kind)
    opened(schema["$defs"])
    return {"$schema": DRAFT, "title": title, **schema}


def opened(components: dict[str, Any]) -> None:
    """Let the open types be open."""
    for kind in OPEN:
        if kind.__name__ in components:
            components[kind.__name__].pop("additionalProperties", None)


def message_schema() -> dict[str, Any]:
    """A message by its type: what the content is, where the protocol says so."""
    (envelope, *contents), components = msgspec.json.schema_components(
        [Message, *BY_TYPE.values(), *ORDERS.values(), TaskAssigned], ref_template="#/$defs/{name}"
    )
    opened(components)
    rules = [_rule({"const": name}, content) for name, content in zip(BY_TYPE, contents, strict=False)]
    orders = contents[len(BY_TYPE) : -1]
    rules += [
        _rule({"const": name}, content, to=MESH)
        for name, content in zip(ORDERS, orders, strict=True)
        if name != "answer"  # with a correlation id its content is any value
    ]
    rules.append(_rule({"const": "task_assign"}, contents[-1], sender=MESH))
    del components["Message"]["properties"][
        "type"
    ]  # control frames are messages too, once the mesh sends them
    return {
        "$schema": DRAFT,
        "title": "A message and its content, by type",
        **envelope,
        "allOf": rules,
        "$defs": components,
    }


def task_schema() -> dict[str, Any]:
    """The content of messages about tasks: those the mesh writes, and those it obeys."""
    contents, components = msgspec.json.schema_components(
        [TaskAssigned, *ORDERS.values()], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": DRAFT,
        "title": "Tasks: what the mesh sends as task_assign, and what it obeys",
        "anyOf": list(contents),
        "$defs": components,
    }


def _rule(
    type: dict[str, Any], content: dict[str, Any], *, to: str | None = None, sender: str | None = None
) -> dict[str, Any]:
    """What the content of this type is, where it goes to or comes from such an address."""
    ends = {name: {"pattern": pattern} for name, pattern in (("to", to), ("from", sender)) if pattern}
    condition = {"properties": {"type": type, **ends}, "required": ["type", *ends]}
    return {"if": condition, "then": {"properties": {"content": content}}}


def schemas() -> dict[str, dict[str, Any]]:
    """All of them, by the name of their file."""
    made = (
        schema_of(Message, "The envelope of a message"),
        message_schema(),
        task_schema(),
        schema_of(AgentBody, "An agent"),
        {"$schema": DRAFT, **workflow_schema()},
    )
    return dict(zip(SCHEMA_FILES, made, strict=True))


def as_text(schema: dict[str, Any]) -> str:
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2).decode() + "\n"


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (FOLDER / name).write_text(as_text(schema), encoding="utf-8")


if __name__ == "__main__":
    write()
