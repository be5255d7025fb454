"""Stored workflows: put a version, look, run by name, remove."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from relaymesh.kernel.query import ListWorkflows
from relaymesh.server.exchange import Exchange, Reply
from relaymesh.server.routes.tasks import submitted_reply
from relaymesh.server.workflows import Workflows, missing, named
from relaymesh.wire.api import (
    PutWorkflowRequest,
    RemovedAnswer,
    RunRequest,
    WorkflowBody,
    WorkflowQuery,
    WorkflowsAnswer,
    WorkflowsQuery,
    WorkflowSummaryBody,
    workflow_body,
    workflow_summary,
)
from relaymesh.wire.tasks import PutWorkflow, SubmitTask

LISTING = {name: name for name in ("name", "namespace", "limit", "cursor")}
LOOKING = {"version": "version"}


async def put(exchange: Exchange) -> Reply:
    """Store a workflow under a version. If the same version with the same document exists, the answer is
    200."""
    exchange.principal.require("write")
    request = await exchange.decode(PutWorkflowRequest)
    workflows = _workflows(exchange)
    owner = workflows.owner(request.owner)
    exchange.acted_as({owner})
    stored = await workflows.put(PutWorkflow(bytes(request.workflow), request.version, owner))
    answer: WorkflowSummaryBody = workflow_summary(stored.workflow, duplicate=stored.duplicate)
    return Reply(200 if stored.duplicate else 201, msgspec.json.encode(answer))


async def list_workflows(exchange: Exchange) -> WorkflowsAnswer:
    """The last version of each workflow, or every version of the one named; the newest first."""
    exchange.principal.require("read")
    query = exchange.query_into(WorkflowsQuery, LISTING)
    asked = ListWorkflows(query.namespace, query.name, query.limit + 1, query.cursor)
    async with exchange.account.long_work:
        views = await _workflows(exchange).all(asked)
    shown = views[: query.limit]
    cursor = shown[-1].sequence if len(views) > len(shown) else None
    return WorkflowsAnswer(workflows=[workflow_summary(view) for view in shown], cursor=cursor)


async def show(exchange: Exchange) -> WorkflowBody:
    """A version of a workflow with its document; without a version the one that was put last."""
    exchange.principal.require("read")
    query = exchange.query_into(WorkflowQuery, LOOKING)
    name = exchange.parameters["name"]
    view = await _workflows(exchange).found(name, query.version)
    if view is None:
        raise missing(name[:128], query.version)
    return workflow_body(view)


async def run(exchange: Exchange) -> Reply:
    """Run a stored workflow. The same version with the same input runs once, as for any submit."""
    exchange.principal.require("write")
    request = await exchange.decode(RunRequest)
    workflows = _workflows(exchange)
    owner, name = workflows.owner_at(exchange.parameters["name"], request.owner)
    exchange.acted_as({owner})
    given = b"null" if request.input is UNSET else bytes(request.input)
    submitted = await workflows.submit(
        SubmitTask(
            named(name, request.version),
            given,
            request.key,
            owner,
            request.trace,
            request.again,
            reply_to=workflows.reply_to(request.reply_to),
            notify=tuple(request.notify),
        )
    )
    return submitted_reply(submitted)


async def remove(exchange: Exchange) -> RemovedAnswer:
    """Remove a version of a workflow; without a version all of them. Tasks that run go on."""
    exchange.principal.require("write")
    query = exchange.query_into(WorkflowQuery, LOOKING)
    return RemovedAnswer(
        removed=await _workflows(exchange).remove(exchange.parameters["name"], query.version)
    )


def _workflows(exchange: Exchange) -> Workflows:
    return Workflows(exchange.served, exchange.principal, exchange.account)
