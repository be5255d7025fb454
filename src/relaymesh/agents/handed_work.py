"""From a delivery to the work of an adapter, and from its outcome to the command that settles it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from relaymesh.agents.adapter import Done, Failure, Grown, Outcome, Used, Work
from relaymesh.agents.declarations import AgentDeclaration
from relaymesh.client.websocket import WebSocketSession
from relaymesh.errors import Conflict, InvalidPlan, LeaseLost, MeshError, SenderError
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.kernel.bounds import CODE_LENGTH_MAX, sound
from relaymesh.kernel.commands import Ack, Nack, Settle
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.tasks.commands import NO_USAGE, Abandon, Fail, Finish, Report, Usage
from relaymesh.wire.tasks import GrowStep, is_step
from relaymesh.wire.usage import usage_of

__all__ = ["settle", "usage_in", "work_of"]

FRESH = "fresh"
QUESTION = "question"
INVALID = "invalid"


class _Assigned(msgspec.Struct):
    """The fields of a step's message from which the work is made."""

    task: str
    step: str
    input: msgspec.Raw = msgspec.Raw(b"null")


_assigned = msgspec.json.Decoder(_Assigned)


def work_of(row: DeliveryRow, declared: AgentDeclaration, run: str, folder: Path) -> Work:
    """The work of one attempt. `folder`: where relative workspaces start."""
    envelope = row.envelope
    task: str | None = envelope.task
    step, content = None, envelope.content
    if envelope.encoding:
        content = msgspec.json.encode({"base64": content})
    elif is_step(envelope):
        try:
            assigned = _assigned.decode(content)
            task, step, content = assigned.task, assigned.step, bytes(assigned.input)
        except msgspec.MsgspecError:  # an edited dead letter: the adapter gets what is there
            pass
    return Work(
        run=run,
        agent=declared.name,
        message_id=envelope.id,
        type=envelope.type,
        sender=envelope.sender.removeprefix(f"{DEFAULT_NAMESPACE}/"),
        content=content,
        task=task,
        step=step,
        attempt=row.attempt,
        time_limit_s=declared.time_limit,
        silence_limit_s=declared.silence_limit,
        workspace=None if declared.workspace == FRESH else (folder / declared.workspace).absolute(),
    )


def usage_in(used: Used) -> Usage:
    """What an attempt has used, as the mesh counts it. A value that is not an amount counts as 0."""
    given = {"cost_usd": used.cost_usd, "tokens": used.tokens}
    try:
        return usage_of({name: value for name, value in given.items() if value is not None})
    except MeshError:
        return NO_USAGE


async def settle(session: WebSocketSession, row: DeliveryRow, outcome: Outcome) -> str:
    """Settle the delivery.

    Returns the outcome in one word. Raises `LeaseLost` if the lease is lost.
    """
    try:
        return await _settle(session, row, outcome)
    except LeaseLost:
        raise
    except SenderError as refused:  # such as a result of 20 MB: to run it again would not help
        nack = Nack(row.token, INVALID, f"the outcome was refused: {refused.message}", retryable=False)
        return await session.execute(nack)


async def _settle(session: WebSocketSession, row: DeliveryRow, outcome: Outcome) -> str:
    step, usage = is_step(row.envelope), usage_in(outcome.used)
    if isinstance(outcome, Failure):
        return await _settle_failure(session, row, outcome, usage)
    if isinstance(outcome, Grown):
        if not step:
            return await session.execute(
                Nack(
                    row.token, INVALID, "only a step of a task can continue with more steps", retryable=False
                )
            )
        try:
            await session.execute(GrowStep(row.token, outcome.steps, usage))
        except (InvalidPlan, Conflict) as refused:
            return await session.execute(
                Nack(row.token, INVALID, f"its new steps were refused: {refused.message}")
            )
        return "grown"
    if step:
        await session.execute(Finish(row.token, outcome.value, usage))
    elif row.envelope.type == QUESTION and outcome.value != b"null":
        await _answer(session, row, outcome)
    else:
        _check_settled(await session.execute(Ack([row.token])), row)
    return "done"


async def _settle_failure(session: WebSocketSession, row: DeliveryRow, failure: Failure, usage: Usage) -> str:
    token, code = row.token, sound(failure.code)[:CODE_LENGTH_MAX] or "other"
    if failure.drop:
        _check_settled(await session.execute(Ack([token], drop=True)), row)
        return "dropped"
    if failure.abandoned:
        _check_settled(await session.execute(Abandon([token], failure.reason)), row)
        return "abandoned"
    if is_step(row.envelope):
        if failure.final:
            await session.execute(Fail(token, code, failure.reason, usage))
            return "failed"
        if usage != NO_USAGE:
            await session.execute(Report(token, "", usage))
    if failure.until_ms is not None:
        return await session.execute(Nack(token, code, failure.reason, until=failure.until_ms))
    nack = Nack(token, code, failure.reason, retryable=not failure.final, delay_ms=failure.after_ms)
    return await session.execute(nack)


async def _answer(session: WebSocketSession, row: DeliveryRow, outcome: Done) -> None:
    """The value is the answer to a question of ordinary mail."""
    asked = row.envelope
    answer = Envelope(
        session.new_ids(1)[0],
        row.mailbox,
        outcome.value,
        type="answer",
        correlation_id=asked.correlation_id or asked.id,
        task=asked.task,
        trace=asked.trace,
    )
    await session.execute(Settle(row.token, [(asked.reply_to or asked.sender, [answer])], minted=True))


def _check_settled(stale: list[int], row: DeliveryRow) -> None:
    if stale:
        raise LeaseLost(f"the lease of {row.envelope.id} was lost")
