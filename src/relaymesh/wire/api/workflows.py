"""Stored workflows: put under a version, listed, shown, run by name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from relaymesh.kernel.bounds import TEXT_LENGTH_MAX
from relaymesh.kernel.tasks.commands import VERSION_LENGTH_MAX
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.wire.api.base import Address, Answer, Content, Name, Request, Time
from relaymesh.wire.api.tasks import Notify, ReplyTo
from relaymesh.wire.envelope import iso

WORKFLOWS_MAX = 1_000

Document = Annotated[
    msgspec.Raw,
    Meta(
        description="A workflow: its name, and its steps by name (workflow.schema.json).",
        extra_json_schema={"type": "object"},
    ),
]
Version = Annotated[
    str,
    Meta(
        description="Letters, digits, `_`, `-`, `+` and `.`; empty: none is named.",
        max_length=VERSION_LENGTH_MAX,
    ),
]


class PutWorkflowRequest(Request, frozen=True):
    """Keep a workflow under a version; empty: the one in its document, or the next whole number."""

    workflow: Document
    version: Version = ""
    owner: Name | None = None


class RunRequest(Request, frozen=True):
    """Run a stored workflow once: the same version with the same input, or the same key, is the same task."""

    version: Version = ""
    input: Annotated[Content, Meta(description="What the steps read as `input`.")] | UnsetType = UNSET
    key: Annotated[
        str,
        Meta(
            description="Idempotency key; empty: the digest of workflow, version and input.",
            max_length=TEXT_LENGTH_MAX,
        ),
    ] = ""
    again: Annotated[bool, Meta(description="Run it anew if it ended without success.")] = False
    owner: Name | None = None
    trace: Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)] | None = None
    reply_to: ReplyTo | None = None
    notify: Notify = msgspec.field(default_factory=list)


class WorkflowsQuery(Request, frozen=True):
    """The query of `GET /v1/workflows`."""

    name: str | None = None
    namespace: str | None = None
    limit: Annotated[int, Meta(description="At most so many.", ge=1, le=WORKFLOWS_MAX)] = 100
    cursor: Annotated[int, Meta(description="`cursor` of the page before.", ge=0, le=1 << 62)] | None = None


class WorkflowQuery(Request, frozen=True):
    """The query of `GET` and `DELETE /v1/workflows/{name}`."""

    version: Version = ""


class WorkflowSummaryBody(Answer, frozen=True):
    """One version of a workflow, without its document."""

    name: str
    version: str
    owner: Address
    digest: Annotated[str, Meta(description="SHA-256 of the document without its version, in hex.")]
    size: Annotated[int, Meta(description="Bytes of the document.")]
    versions: Annotated[int, Meta(description="How many versions the workflow has.")]
    created_at: Time
    sequence: Annotated[int, Meta(description="Of the event that put it.")]
    duplicate: Annotated[bool, Meta(description="Of a put: this version was there already.")] = False


class WorkflowBody(WorkflowSummaryBody, frozen=True, kw_only=True):
    """One version of a workflow with its document."""

    document: Document


class WorkflowsAnswer(Answer, frozen=True):
    """Workflows, the newest first. `cursor`: names the next page; null: there is none."""

    workflows: list[WorkflowSummaryBody]
    cursor: int | None = None


class RemovedAnswer(Answer, frozen=True):
    """How many versions were removed."""

    removed: int


def workflow_summary(view: WorkflowView, *, duplicate: bool = False) -> WorkflowSummaryBody:
    return WorkflowSummaryBody(**_fields(view), duplicate=duplicate)


def workflow_body(view: WorkflowView) -> WorkflowBody:
    return WorkflowBody(**_fields(view), document=msgspec.Raw(view.document or b"null"))


def _fields(view: WorkflowView) -> dict[str, Any]:
    return {
        "name": view.name,
        "version": view.version,
        "owner": view.owner,
        "digest": view.digest.hex(),
        "size": view.size,
        "versions": view.versions,
        "created_at": iso(view.at),
        "sequence": view.sequence,
    }
