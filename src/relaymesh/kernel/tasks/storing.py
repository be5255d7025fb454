"""Putting a workflow under a version, and removing versions."""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.errors import Conflict, OverBudget
from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.records import WorkflowPut, WorkflowRemoved
from relaymesh.kernel.tasks.commands import PutVersion, RemoveVersions, Stored
from relaymesh.kernel.tasks.numbering import NUMBER_MAX
from relaymesh.kernel.tasks.stored import (
    NAMES_MAX,
    NAMESPACE_BYTES_MAX,
    VERSIONS_MAX,
    WORKFLOW_BYTES,
    StoredVersion,
    StoredWorkflows,
    view_of,
)

REMOVE = "remove what is not needed: relaymesh workflow remove NAME@VERSION"


def put(decision: Decision, command: PutVersion) -> Stored:
    """Keep a version, unless it is there. Without a version it gets the next number."""
    workflows, namespace = decision.state.workflows, namespace_of(command.owner)
    versions = workflows.versions(namespace, command.name)
    known = _known(versions, command.version)
    if known is not None and known.digest == command.digest:
        decision.after_sync()
        return Stored(view_of(known, len(versions)), True)
    if known is not None and command.version:
        raise Conflict(
            f"version {command.version} of workflow {command.name!r} has another document",
            hint="put it under another version, or without one: it then gets the next number",
        )
    _require_room(workflows, namespace, command, len(versions))
    if command.budget:
        size = WORKFLOW_BYTES + len(command.document)
        decision.state.charges.require(command.owner, size, command.budget)
    version = command.version or _next_number(workflows, namespace, command.name)
    decision.emit(
        WorkflowPut(
            1, decision.now, namespace, command.name, version, command.document, command.digest, command.owner
        )
    )
    decision.after_sync()
    now = workflows.versions(namespace, command.name)
    return Stored(view_of(now[-1], len(now)))


def remove(decision: Decision, command: RemoveVersions) -> int:
    """Returns how many versions were removed."""
    found = decision.state.workflows.versions(command.namespace, command.name)
    versions = [each.version for each in found if command.version in ("", each.version)]
    if not versions:
        decision.after_sync()
        return 0
    decision.emit(WorkflowRemoved(1, decision.now, command.namespace, command.name, versions, command.by))
    decision.after_sync()
    return len(versions)


def _known(versions: Sequence[StoredVersion], version: str) -> StoredVersion | None:
    """The version that a put names; without one, the last version that was put, if the document is the
    same."""
    for stored in reversed(versions):
        if version in ("", stored.version):
            return stored
    return None


def _next_number(workflows: StoredWorkflows, namespace: str, name: str) -> str:
    number = workflows.numbers.next(namespace, name)
    if number > NUMBER_MAX:
        raise Conflict(
            f"workflow {name!r} has used version {NUMBER_MAX}, and no number is behind it",
            hint="name the version: relaymesh workflow put FILE --version NAME",
        )
    return str(number)


def _require_room(workflows: StoredWorkflows, namespace: str, command: PutVersion, versions: int) -> None:
    if versions >= VERSIONS_MAX:
        raise OverBudget(f"workflow {command.name!r} has {versions} versions already", hint=REMOVE)
    if not versions and workflows.names(namespace) >= NAMES_MAX:
        raise OverBudget(f"namespace {namespace!r} has {NAMES_MAX} workflows already", hint=REMOVE)
    size = workflows.bytes_of(namespace) + len(command.document)
    if size > NAMESPACE_BYTES_MAX:
        raise OverBudget(
            f"the workflows of namespace {namespace!r} would have {size} bytes;"
            f" {NAMESPACE_BYTES_MAX} are allowed",
            hint=REMOVE,
        )
