"""Workflows that the mesh keeps, as the SDK shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from relaymesh.kernel.address import name_of
from relaymesh.kernel.tasks.commands import Stored
from relaymesh.kernel.tasks.stored import WorkflowView, missing
from relaymesh.wire.envelope import when

__all__ = ["StoredWorkflow", "found_workflow", "put_of", "workflow_of"]


@dataclass(frozen=True)
class StoredWorkflow:
    """One version of a workflow. `mesh.submit(f"{name}@{version}")` runs it."""

    name: str
    version: str
    owner: str
    digest: str
    """SHA-256, in hex, of the document without its version, as canonical JSON."""
    size: int
    """Bytes of the document."""
    versions: int
    """How many versions the workflow has."""
    created_at: datetime
    document: Mapping[str, Any] | None
    """The workflow with its version; None in lists, and after a put."""
    duplicate: bool
    """An earlier put made this version, with the same document."""


def workflow_of(view: WorkflowView, *, duplicate: bool = False) -> StoredWorkflow:
    return StoredWorkflow(
        view.name,
        view.version,
        name_of(view.owner),
        view.digest.hex(),
        view.size,
        view.versions,
        when(view.at),
        None if view.document is None else msgspec.json.decode(view.document),
        duplicate,
    )


def put_of(stored: Stored) -> StoredWorkflow:
    return workflow_of(stored.workflow, duplicate=stored.duplicate)


def found_workflow(view: WorkflowView | None, name: str, version: str) -> StoredWorkflow:
    """Raises `NotFound` if there is none."""
    if view is None:
        raise missing(name, version)
    return workflow_of(view)
