"""What a caller submits, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relaymesh.errors import InvalidPlan, InvalidValue, MeshError
from relaymesh.kernel.bounds import shown
from relaymesh.plans.builder import Workflow
from relaymesh.plans.naming import split_name
from relaymesh.wire.content import encode_content
from relaymesh.wire.tasks import DOCUMENT_BYTES_MAX

__all__ = ["MESH_SENDER", "document_of", "json_of", "plan_json", "value_of", "whole_of"]


MESH_SENDER = "default/mesh"
"""The default sender of messages and owner of tasks."""


def document_of(workflow: Workflow | Mapping[str, Any] | str) -> bytes:
    """The document of a workflow as JSON; for a stored workflow its name."""
    if isinstance(workflow, str):
        name, version = split_name(workflow)
        return _json(f"{name}@{version}" if version else name, "the name of the workflow")
    return whole_of(workflow)


def whole_of(workflow: Workflow | Mapping[str, Any]) -> bytes:
    """The document itself, as JSON."""
    if isinstance(workflow, Workflow):
        workflow = workflow.document()
    if not isinstance(workflow, Mapping):
        raise InvalidPlan(f"a workflow is a Workflow or a dict, not {shown(workflow)}")
    return _json(dict(workflow), "the workflow")


def json_of(value: Any) -> bytes:
    """The input of a task, as JSON."""
    return _json(value, "the input")


def plan_json(value: Any, what: str) -> bytes:
    """A part of a workflow, as JSON."""
    return _json(value, what)


def value_of(value: Any, what: str) -> bytes:
    """An answer, or the value of a signal, as JSON."""
    return _json(value, what, InvalidValue)


def _json(value: Any, what: str, error: type[MeshError] = InvalidPlan) -> bytes:
    try:
        data, encoding = encode_content(value, DOCUMENT_BYTES_MAX)
    except MeshError as refused:
        raise error(f"{what} cannot be sent: {refused.message}") from None
    if encoding:
        raise error(f"{what} must be a JSON value, not bytes")
    return data
