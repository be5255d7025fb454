"""Tasks of the HTTP API as the values that sessions return."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from relaymesh.client.messages import ms_of
from relaymesh.kernel.tasks.views import StepView, TaskShown, TaskView
from relaymesh.kernel.token import TOKEN_COUNTER_BITS, parse_token
from relaymesh.wire import api
from relaymesh.wire.usage import micros_of


def view_of(body: api.TaskSummaryBody, result: bytes | None = None) -> TaskView:
    ended = -1 if body.ended_at is UNSET else ms_of(body.ended_at)
    return TaskView(
        body.task,
        body.workflow,
        body.version,
        body.status,
        body.owner,
        body.key,
        bytes.fromhex(body.request),
        None if body.trace is UNSET else body.trace,
        ms_of(body.created_at),
        body.updated_at_ms,
        ended,
        body.reason,
        result,
        body.steps_total,
        body.steps_ended,
        body.sequence,
        cost_micros=micros_of(body.cost_usd),
        tokens=body.tokens,
        cost_micros_max=micros_of(body.cost_usd_max),
        tokens_max=body.tokens_max,
        waiting=body.waiting,
        again_of=body.again_of,
    )


def shown_of(body: api.TaskBody) -> TaskShown:
    steps = tuple([_step(body.task, each) for each in body.steps])
    return TaskShown(view_of(body, _bytes(body.result)), steps, body.revision)


def _step(task: str, body: api.StepBody) -> StepView:
    token = 0 if body.lease_token is UNSET else parse_token(body.lease_token) or 0
    return StepView(
        task,
        body.number,
        body.name,
        body.agent,
        body.status,
        body.attempt,
        body.failed,
        body.abandoned,
        _ms(body.next_retry_at),
        body.lease_owner,
        token,
        token >> TOKEN_COUNTER_BITS,
        _ms(body.sent_at),
        _ms(body.granted_at),
        _ms(body.updated_at),
        -1 if body.ended_at is UNSET else ms_of(body.ended_at),
        body.code,
        body.reason,
        body.waiting,
        body.progress,
        _bytes(body.output),
        body.uncertain,
    )


def _ms(time: str | UnsetType) -> int:
    return 0 if time is UNSET else ms_of(time)


def _bytes(value: Any) -> bytes | None:
    return None if value is UNSET else bytes(value)
