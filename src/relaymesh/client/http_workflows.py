"""Stored workflows over plain HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw

from relaymesh.client.http_tasks import HttpTasks
from relaymesh.client.messages import ms_of
from relaymesh.errors import NotFound
from relaymesh.kernel.query import ListWorkflows
from relaymesh.kernel.tasks.commands import RemoveVersions, Stored
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.wire import api
from relaymesh.wire.api.workflows import WORKFLOWS_MAX
from relaymesh.wire.tasks import FindWorkflow, PutWorkflow

__all__ = ["HttpWorkflows"]


class HttpWorkflows(HttpTasks):
    """Requests about stored workflows. `HttpSession` sends them."""

    async def _put_workflow(self, request: PutWorkflow, **_: Any) -> Stored:
        body = api.PutWorkflowRequest(
            workflow=Raw(request.document), version=request.version, owner=request.owner
        )
        answer, repeated = await self._ask("POST", "/v1/workflows", body, api.WorkflowSummaryBody)
        return Stored(_view_of(answer), answer.duplicate and not repeated)

    async def _find_workflow(self, request: FindWorkflow, **_: Any) -> WorkflowView | None:
        asked = {"version": request.version} if request.version else {}
        try:
            body = await self._get(_workflow(request.name, request.namespace), api.WorkflowBody, **asked)
        except NotFound:
            return None
        return msgspec.structs.replace(_view_of(body), document=bytes(body.document))

    async def _workflows(self, query: ListWorkflows, **_: Any) -> list[WorkflowView]:
        found: list[WorkflowView] = []
        wanted = {"namespace": query.namespace, "name": query.name, "cursor": query.before}
        asked: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
        while len(found) < query.limit:
            asked["limit"] = min(WORKFLOWS_MAX, query.limit - len(found))
            answer = await self._get("/v1/workflows", api.WorkflowsAnswer, **asked)
            found += [_view_of(body) for body in answer.workflows]
            if answer.cursor is None:
                break
            asked["cursor"] = answer.cursor
        return found

    async def _remove_workflow(self, command: RemoveVersions, **_: Any) -> int:
        asked: dict[str, Any] = {"version": command.version} if command.version else {}
        path = _workflow(command.name, command.namespace)
        answer, _repeated = await self._ask("DELETE", path, None, api.RemovedAnswer, **asked)
        removed: int = answer.removed
        return removed


def _view_of(body: api.WorkflowSummaryBody) -> WorkflowView:
    return WorkflowView(
        body.name,
        body.version,
        body.owner,
        bytes.fromhex(body.digest),
        ms_of(body.created_at),
        body.sequence,
        body.size,
        body.versions,
    )


def _workflow(name: str, namespace: str) -> str:
    return f"/v1/workflows/{quote(f'{namespace}/{name}', safe='/')}"
