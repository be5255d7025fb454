"""Calls about one step: its end, its progress, and the answer to its question."""

from __future__ import annotations

from relaymesh.errors import LeaseLost
from relaymesh.kernel.query import BoundsOf, GrantsOf, MailboxesOf
from relaymesh.kernel.tasks.commands import NO_USAGE, Abandon, Fail, Finish, Report
from relaymesh.kernel.tasks.looks import StepBounds
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.token import format_token
from relaymesh.server.tasks import Tasks, growth, sound_json
from relaymesh.server.ws.operations import Operations
from relaymesh.wire import frames
from relaymesh.wire.tasks import GrowStep


async def answer_step(on: Operations, given: frames.AnswerStep) -> Status:
    """The answer settles the question: credit for its delivery comes back, if one is out here."""
    tasks = Tasks(on.served, on.principal, on.account, on.agent)
    by = tasks.answerer(given.agent)
    status = await tasks.answer(given.task, given.step, given.value, by)
    out = [token for token, mailbox in on.session.granted.items() if mailbox == by]
    held = await on.served.session.execute(MailboxesOf(out))
    on.settled([token for token in out if token not in held])
    return status


async def _own_step(on: Operations, token: int) -> None:
    """Refuse a token whose mailbox is not the credential's. Its lease may be over: see `Finish`."""
    mailboxes = await on.served.session.execute(GrantsOf([token]))
    if token not in mailboxes or not on.principal.may_receive(mailboxes[token]):
        raise LeaseLost(f"lease {format_token(token)} is not the last one of a step that is still open")


async def finish_step(on: Operations, given: frames.FinishStep) -> Status:
    command = Finish(given.token, given.output, given.usage or NO_USAGE)
    sound_json(command.output)
    await _own_step(on, command.token)
    status = await on.served.session.execute(command)
    on.settled([command.token])
    return status


async def grow_step(on: Operations, given: frames.GrowStep) -> Status:
    asked = GrowStep(given.token, given.document, given.usage or NO_USAGE)
    await _own_step(on, asked.token)
    command = await growth(on.served, on.account, asked)
    status = await on.served.session.execute(command)
    on.settled([command.token])
    return status


async def fail_step(on: Operations, given: frames.FailStep) -> Status:
    command = Fail(given.token, given.code, given.reason, given.usage or NO_USAGE)
    await _own_step(on, command.token)
    status = await on.served.session.execute(command)
    on.settled([command.token])
    return status


async def report_step(on: Operations, given: frames.ReportStep) -> None:
    command = Report(given.token, given.progress, given.usage or NO_USAGE)
    await _own_step(on, command.token)
    await on.served.session.execute(command)


async def step_bounds(on: Operations, given: frames.OfGrant) -> StepBounds:
    """What the holder of a step may still use: of the budget of its task, and of the time."""
    await _own_step(on, given.token)
    return await on.served.session.execute(BoundsOf(given.token)) or StepBounds()


async def abandon(on: Operations, given: frames.Abandon) -> list[int]:
    asked = Abandon(given.tokens, given.reason)
    mine = await on.own(asked.tokens)
    stale = [token for token in asked.tokens if token not in mine]
    asked.tokens = [token for token in asked.tokens if token in mine]
    stale += await on.served.session.execute(asked)
    on.settled(list(asked.tokens))
    return stale
