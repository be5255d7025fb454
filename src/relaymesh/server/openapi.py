"""OpenAPI 3.1 of the HTTP API, made from the routing table and the types of its bodies.

The description of an operation is its endpoint's docstring, its answer the endpoint's return type. `DETAILS`
has what the table of routes cannot have: the request, the query, and answers that are not a plain body.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import field

from relaymesh.kernel.tasks.status import Status
from relaymesh.server.codes import CODES
from relaymesh.server.routing import Operation
from relaymesh.server.schemas import opened
from relaymesh.server.version import VERSION
from relaymesh.wire import api
from relaymesh.wire.message import Message
from relaymesh.wire.retention import AGE_MS_MAX
from relaymesh.wire.settings import HISTORY_MAX
from relaymesh.wire.tasks import ITS_END

JSON = "application/json"
PROBLEM = "application/problem+json"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
REF = "#/components/schemas/{name}"

NAME_IN_PATH = {"type": "string", "minLength": 1, "maxLength": 257}


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What the routing table does not say about an operation."""

    request: tuple[Any, ...] = ()
    """What the body may be: one of these."""
    body_required: bool = True
    query: dict[str, Any] = field(default_factory=dict)
    """Schemas by parameter."""
    status: int = 200
    answer: tuple[Any, ...] = ()
    """What a good answer may be, where the endpoint returns a `Reply`."""
    text: bool = False
    public: bool = False
    """Whether it needs no credential."""
    problems: tuple[int, ...] = ()
    """Statuses beside those every operation has."""
    conflict: Any = None
    """The body of 409, where it says more than a problem does."""


def _whole(least: int, most: int, default: int, description: str) -> dict[str, Any]:
    return {
        "type": "integer",
        "minimum": least,
        "maximum": most,
        "default": default,
        "description": description,
    }


WAIT_FOR_ROOM = {
    "timeout_ms": _whole(0, 60_000, 0, "How long to wait for room in a full mailbox before 429.")
}
RECEIVING = {
    "max": _whole(1, 1_000, 1, "The maximum number of deliveries."),
    "wait_ms": _whole(0, 60_000, 0, "How long to wait when nothing is ready."),
    "correlation_id": {"type": "string", "minLength": 1, "maxLength": 512},
    "holder": {"type": "string", "minLength": 1, "maxLength": 128},
}
LOADS = {"limit": _whole(1, HISTORY_MAX, HISTORY_MAX, "The newest of them.")}
PURGE = {
    "done_ms": {"type": "integer", "minimum": 0, "maximum": AGE_MS_MAX, "description": "Done longer ago."},
    "dead_ms": {"type": "integer", "minimum": 0, "maximum": AGE_MS_MAX, "description": "Died longer ago."},
    "mailbox": {"type": "string", "minLength": 1, "maxLength": 512, "description": "Full address."},
    "including_steps": {
        "type": "boolean",
        "default": False,
        "description": "Also dead letters of waiting steps.",
    },
}
REPORT = {"day": {"type": "string", "format": "date", "description": "YYYY-MM-DD; else the newest."}}
LETTERS = {
    "receiver": {"type": "string", "description": "Mailbox it died in: address or name."},
    "sender": {"type": "string", "description": "Who sent it: address or name."},
    "reason": {"type": "string", "description": "retries_exhausted, not_retryable, ttl_expired, …"},
    "code": {"type": "string", "description": "Error code of the last failure."},
    "id": {"type": "array", "items": {"type": "string"}, "description": "Message ids."},
    "since": {"type": "string", "format": "date-time", "description": "Died at or after this time."},
    "until": {"type": "string", "format": "date-time", "description": "Died before this time."},
    "status": {"enum": ["pending", "redriven", "all"], "default": "pending"},
    "limit": _whole(1, 10_000, 100, "The maximum number."),
}
TASKS = {
    "status": {"enum": list(get_args(Status)), "description": "Tasks in this state."},
    "workflow": {"type": "string", "description": "Tasks of the workflow of this name."},
    "namespace": {"type": "string", "description": "Of a credential of every namespace: of this one alone."},
    "limit": _whole(1, 1_000, 100, "The maximum number."),
    "cursor": {"type": "integer", "minimum": 0, "description": "`cursor` of the page before."},
}
WORKFLOWS = {
    "name": {"type": "string", "description": "Every version of the workflow of this name."},
    **{name: TASKS[name] for name in ("namespace", "limit", "cursor")},
}
SCHEDULES = {
    **{name: TASKS[name] for name in ("namespace", "limit")},
    "cursor": {"type": "string", "maxLength": 512, "description": "`cursor` of the page before."},
}
VERSION_OF = {
    "version": {
        "type": "string",
        "maxLength": 128,
        "description": "Left out: the last one; to remove: all.",
    }
}
SENDING = Details(
    request=(Message, list[Message]),
    query=WAIT_FOR_ROOM,
    status=202,
    answer=(api.ReceiptBody, api.ReceiptsAnswer),
    problems=(409, 507),
)

DETAILS: dict[tuple[str, str], Details] = {
    ("POST", "/v1/messages"): SENDING,
    ("POST", "/v1/topics/{topic}/messages"): SENDING,
    ("POST", "/v1/settle"): Details(
        request=(api.SettleRequest,), answer=(api.SettledAnswer,), problems=(507,), conflict=api.SettleProblem
    ),
    ("POST", "/v1/mailboxes/{mailbox}/receive"): Details(
        request=(api.ReceiveRequest,), body_required=False, query=RECEIVING
    ),
    ("POST", "/v1/mailboxes/{mailbox}/complete"): Details(request=(api.CompleteRequest,)),
    ("POST", "/v1/mailboxes/{mailbox}/ended"): Details(request=(api.EndedRequest,)),
    ("POST", "/v1/mailboxes/{mailbox}/expect"): Details(request=(api.ExpectRequest,)),
    ("POST", "/v1/mailboxes/{mailbox}/unexpect"): Details(request=(api.ExpectRequest,)),
    ("POST", "/v1/mailboxes/{mailbox}/reprioritise"): Details(request=(api.ReprioritiseRequest,)),
    ("PUT", "/v1/mailboxes/{mailbox}/breaker"): Details(request=(api.BreakerRequest,)),
    ("PUT", "/v1/mailboxes/{mailbox}"): Details(
        request=(api.OpenMailboxRequest,), body_required=False, problems=(507,)
    ),
    ("GET", "/v1/mailboxes/{mailbox}"): Details(
        query={
            "limit": _whole(0, 1_000, 20, "The maximum number."),
            "after": _whole(0, 2**63 - 1, 0, "Entries after this sequence."),
        }
    ),
    ("PUT", "/v1/topics/{topic}/subscriptions/{name}"): Details(
        request=(api.SubscribeRequest,), body_required=False, problems=(507,)
    ),
    ("POST", "/v1/tasks"): Details(
        request=(api.SubmitRequest,), status=201, answer=(api.SubmittedAnswer,), problems=(409, 507)
    ),
    ("GET", "/v1/tasks"): Details(query=TASKS),
    ("POST", "/v1/tasks/{id}/cancel"): Details(request=(api.CancelRequest,), body_required=False),
    ("POST", "/v1/tasks/{id}/steps/{step}/answer"): Details(request=(api.AnswerRequest,)),
    ("POST", "/v1/tasks/{id}/signals"): Details(request=(api.SignalRequest,)),
    ("POST", "/v1/tasks/{id}/budget"): Details(request=(api.BudgetRequest,)),
    ("POST", "/v1/tasks/{id}/rerun"): Details(
        request=(api.RerunRequest,), status=201, answer=(api.SubmittedAnswer,)
    ),
    ("GET", "/v1/tasks/{id}"): Details(
        query={
            "wait": {"type": "number", "minimum": 0, "maximum": 30, "default": 0, "description": "Seconds."},
            "seen": _whole(-1, ITS_END, -1, "The known `revision`; 2^62 waits only for the end."),
        }
    ),
    ("POST", "/v1/workflows"): Details(
        request=(api.PutWorkflowRequest,), status=201, answer=(api.WorkflowSummaryBody,), problems=(409, 507)
    ),
    ("GET", "/v1/workflows"): Details(query=WORKFLOWS),
    ("POST", "/v1/workflows/{name}/run"): Details(
        request=(api.RunRequest,),
        body_required=False,
        status=201,
        answer=(api.SubmittedAnswer,),
        problems=(409, 507),
    ),
    ("GET", "/v1/workflows/{name}"): Details(query=VERSION_OF),
    ("DELETE", "/v1/workflows/{name}"): Details(query=VERSION_OF),
    ("POST", "/v1/schedules"): Details(
        request=(api.PutScheduleRequest,), status=201, answer=(api.ScheduleBody,), problems=(409, 507)
    ),
    ("GET", "/v1/schedules"): Details(query=SCHEDULES),
    ("POST", "/v1/schedules/{name}/resume"): Details(problems=(409,)),
    ("POST", "/v1/agents"): Details(request=(api.RegisterRequest,), problems=(507,)),
    ("POST", "/v1/agents/{name}/heartbeat"): Details(request=(api.HeartbeatRequest,), body_required=False),
    ("GET", "/v1/dead-letters"): Details(query=LETTERS),
    ("POST", "/v1/dead-letters/redrive"): Details(request=(api.RedriveRequest,), problems=(409, 507)),
    ("POST", "/v1/dead-letters/purge"): Details(request=(api.PurgeRequest,)),
    ("GET", "/v1/dead-letters/report"): Details(query=REPORT, problems=(404,)),
    ("GET", "/v1/purge"): Details(query=PURGE),
    ("POST", "/v1/purge"): Details(request=(api.PurgeOldRequest,)),
    ("GET", "/v1/settings/history"): Details(query=LOADS),
    ("POST", "/v1/delayed/deliver"): Details(request=(api.ForceDelayedRequest,), body_required=False),
    ("GET", "/v1/agents"): Details(answer=(api.AgentsAnswer,)),
    ("GET", "/v1/stats"): Details(answer=(api.StatsAnswer,)),
    ("GET", "/metrics"): Details(text=True),
    ("GET", "/healthz"): Details(public=True),
    ("GET", "/readyz"): Details(public=True, answer=(api.ReadyAnswer,)),
}


def openapi(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document."""
    rows = [(row, path_of(row.path)) for row in operations]
    components = _components(rows)
    paths: dict[str, dict[str, Any]] = {}
    for row, path in rows:
        paths.setdefault(path, {})[row.method.lower()] = _operation(row, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "RelayMesh",
            "version": VERSION,
            "description": "Mailbox protocol 1.1 over HTTP. An error is a problem document (RFC 9457).",
        },
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "schemas": components,
            "responses": {str(status): _problem(status) for status in sorted(statuses())},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def path_of(path: str) -> str:
    """The path as OpenAPI writes it; a name that holds a slash is percent-encoded by clients."""
    return re.sub(r"\{(\w+):path\}", r"{\1}", path)


def statuses() -> set[int]:
    """Every status a refusal can have."""
    return {row.status for row in CODES if row.status} | {403}


def _problem(status: int) -> dict[str, Any]:
    rows = [row for row in CODES if row.status == status or (status == 403 and row.status == 401)]
    words = "; ".join(f"`{row.name}`: {row.when}" for row in rows)
    return {"description": words, "content": {PROBLEM: {"schema": {"$ref": REF.format(name="ProblemBody")}}}}


def _answers(row: Operation, details: Details) -> tuple[Any, ...]:
    if details.answer or details.text:
        return details.answer
    return (get_type_hints(row.endpoint)["return"],)


def _components(rows: Sequence[tuple[Operation, str]]) -> dict[str, Any]:
    kinds: list[Any] = [api.ProblemBody]
    for row, path in rows:
        details = DETAILS.get((row.method, path), Details())
        kinds += [
            *details.request,
            *_answers(row, details),
            *([details.conflict] if details.conflict else []),
        ]
    _, components = msgspec.json.schema_components(kinds, ref_template=REF)
    opened(components)
    return components


def _schema(kinds: tuple[Any, ...]) -> dict[str, Any]:
    schemas, _ = msgspec.json.schema_components(kinds, ref_template=REF)
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


def _operation(row: Operation, path: str) -> dict[str, Any]:
    details = DETAILS.get((row.method, path), Details())
    summary, _, description = (inspect.getdoc(row.endpoint) or "").partition("\n\n")
    operation: dict[str, Any] = {
        "operationId": f"{row.endpoint.__module__.rpartition('.')[2]}.{row.endpoint.__name__}",
        "summary": " ".join(summary.split()),
        "tags": [_tag(path)],
        "responses": _responses(row, path, details),
    }
    if description:
        operation["description"] = description
    parameters = _parameters(path, details)
    if parameters:
        operation["parameters"] = parameters
    if details.request:
        operation["requestBody"] = {
            "required": details.body_required,
            "content": {JSON: {"schema": _schema(details.request)}},
        }
    if details.public:
        operation["security"] = []
    return operation


def _tag(path: str) -> str:
    parts = path.strip("/").split("/")
    return parts[1] if parts[0] == "v1" else "node"


def _parameters(path: str, details: Details) -> list[dict[str, Any]]:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": NAME_IN_PATH}
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    return in_path + [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in details.query.items()
    ]


def _responses(row: Operation, path: str, details: Details) -> dict[str, Any]:
    media = TEXT if details.text else JSON
    schema = {"type": "string"} if details.text else _schema(_answers(row, details))
    good = {"description": "Done", "content": {media: {"schema": schema}}}
    responses: dict[str, Any] = {str(details.status): good}
    if details.status == 201:
        responses["200"] = {"description": "It was there already", "content": good["content"]}
    if path == "/readyz":
        responses["503"] = {"description": "Messages are not taken now", "content": good["content"]}
    if details.conflict is not None:
        words = " ".join((details.conflict.__doc__ or "").split())
        responses["409"] = {
            "description": words,
            "content": {PROBLEM: {"schema": _schema((details.conflict,))}},
        }
    if details.public:
        refused = {400, 403, 405, 429}
    else:
        refused = {400, 401, 403, 405, 429, 503, *details.problems}
        refused |= {404, 409} if "{" in path or details.request else set()
        refused |= {413, 415} if row.method in {"POST", "PUT", "DELETE"} else set()
    for status in sorted(refused):
        responses.setdefault(str(status), {"$ref": f"#/components/responses/{status}"})
    return responses
