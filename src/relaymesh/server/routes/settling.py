"""Settling: acks, drops, releases, replies, nacks and extends in one body, one result for each token.

A lease token is not a secret: it is settled only if the credential may receive from its mailbox. Tokens are
never issued twice, so what is checked here still holds when the kernel settles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
from msgspec import UNSET

from relaymesh.errors import Closed, DirectoryError, InvalidEnvelope, LeaseLost, MeshError, Unauthorized
from relaymesh.kernel.address import subscriber_of
from relaymesh.kernel.commands import Ack, Extend, Nack, Release, Settle
from relaymesh.kernel.query import GrantsOf, MailboxesOf
from relaymesh.kernel.tasks.commands import Abandon, Fail, Finish, Report
from relaymesh.kernel.token import parse_token
from relaymesh.server.codes import BY_NAME
from relaymesh.server.exchange import Exchange, Reply
from relaymesh.server.intake import Intake, parsed
from relaymesh.server.problem import MEDIA_TYPE, PROBLEM_TYPE, TITLES
from relaymesh.server.security.accounts import Account
from relaymesh.server.security.principal import Principal
from relaymesh.server.served import Served
from relaymesh.server.tasks import growth, sound_json
from relaymesh.wire.api import (
    AbandonBody,
    ExtendBody,
    FailBody,
    FinishBody,
    GrowBody,
    NackBody,
    ReplyBody,
    ReportBody,
    SettledAnswer,
    SettledBody,
    SettleProblem,
    SettleRequest,
    settled_answer,
)
from relaymesh.wire.api.settling import SETTLE_MAX, Outcome, usage_from
from relaymesh.wire.envelope import iso
from relaymesh.wire.tasks import GrowStep

ALL_FAILED = 409


async def settle(exchange: Exchange) -> Reply | SettledAnswer:
    """Settle deliveries. A stale token is `lease_lost` and does not affect the others; 409 if all failed."""
    exchange.principal.require("agent")
    request = await exchange.decode(SettleRequest)
    texts = request.tokens
    if len(texts) > SETTLE_MAX:
        raise InvalidEnvelope(f"one body names at most {SETTLE_MAX} tokens, not {len(texts)}")
    if len(set(texts)) < len(texts):
        raise InvalidEnvelope("a token is named twice", hint="each delivery ends in one way")
    settling = Settling(exchange.served, exchange.principal, exchange.account, settles=request.settles)
    await settling.look_up(texts, frozenset(request.steps))
    exchange.acted_as(settling.holders)
    results = [
        *await settling.end(request.acks, "acked", durable=request.durable),
        *await settling.end(request.drops, "dropped", durable=request.durable),
        *await settling.release(request.releases),
        *await _together([settling.reply(each) for each in request.replies]),
        *await _together([settling.nack(each) for each in request.nacks]),
        *await _together([settling.extend(each) for each in request.extends]),
        *await _together([settling.finish(each) for each in request.finishes]),
        *await _together([settling.grow(each) for each in request.grows]),
        *await _together([settling.fail(each) for each in request.fails]),
        *await _together([settling.report(each) for each in request.reports]),
        *await _together([settling.abandon(each) for each in request.abandons]),
    ]
    answer = settled_answer(results)
    if results and answer.failed == len(results):
        return Reply(ALL_FAILED, msgspec.json.encode(_problem(answer, exchange.scope["path"])), MEDIA_TYPE)
    return answer


def _problem(answer: SettledAnswer, path: str) -> SettleProblem:
    """A problem document that says so to a client that looks at the status alone, with the results in it."""
    first, count = answer.results[0], answer.failed
    code, detail, hint = str(first.code), str(first.detail), str(first.hint or "")
    if first.outcome == "lease_lost":
        error = LeaseLost(f"lease {first.token} is no longer held")
        code, detail, hint = error.code, error.message, error.hint
    return SettleProblem(
        type=PROBLEM_TYPE + code.lower().replace("_", "-"),
        title=TITLES[ALL_FAILED],
        status=ALL_FAILED,
        detail=detail if count == 1 else f"none of {count} tokens could be settled; the first: {detail}",
        code=code,
        hint=hint,
        retryable=code in BY_NAME and BY_NAME[code].retryable,
        instance=path,
        results=answer.results,
        stale=answer.stale,
        failed=count,
    )


async def _together(settles: list[Coroutine[Any, Any, SettledBody]]) -> list[SettledBody]:
    """They are decided in order and share a commit."""
    return await asyncio.gather(*settles)


class Settling:
    """The tokens of one request, and what this credential may do with them."""

    def __init__(
        self, served: Served, principal: Principal, account: Account, *, settles: bool = False
    ) -> None:
        """`settles`: an ack of a step is a result; else the agent's registration decides."""
        self._taken_ms = 0 if settles else served.taken_ms
        self._served = served
        self._account = account
        self._session = served.session
        self._principal = principal
        self._good: dict[str, int] = {}
        self._mailboxes: dict[str, str] = {}
        self._refused: dict[str, SettledBody] = {}
        self.holders: set[str] = set()
        """The agents whose deliveries they are."""

    async def look_up(self, texts: list[str], steps: frozenset[str] = frozenset()) -> None:
        """Sort the tokens: good, stale, or another credential's. Leases of `steps` may be over."""
        tokens = {text: token for text in texts if (token := parse_token(text)) is not None}
        mailboxes = await self._session.execute(MailboxesOf(list(tokens.values())))
        if steps:
            late = [tokens[text] for text in steps if text in tokens]
            mailboxes = {**await self._session.execute(GrantsOf(late)), **mailboxes}
        for text in texts:
            mailbox = mailboxes.get(tokens.get(text, -1))
            if mailbox is None:
                self._refused[text] = SettledBody(token=text, outcome="lease_lost")
            elif self._principal.may_receive(mailbox):
                self._good[text] = tokens[text]
                self.holders.add(subscriber_of(mailbox))
                self._mailboxes[text] = mailbox
            else:
                error = Unauthorized("that delivery is not in a mailbox of this token", authenticated=True)
                self._refused[text] = _refused(text, error)

    def _usable(self, texts: list[str]) -> list[int]:
        return [self._good[text] for text in texts if text in self._good]

    async def end(self, texts: list[str], outcome: Outcome, *, durable: bool) -> list[SettledBody]:
        """Ack or drop, in one step."""
        tokens = self._usable(texts)
        stale: set[int] = set()
        if tokens:
            command = Ack(tokens, outcome == "dropped", self._taken_ms)
            stale = set(await self._session.execute(command, durable=durable))
        return [self._refused.get(text) or _ended(text, outcome, self._good[text] in stale) for text in texts]

    async def release(self, texts: list[str]) -> list[SettledBody]:
        tokens = self._usable(texts)
        if tokens:
            await self._session.execute(Release(tokens))
        return [self._refused.get(text) or SettledBody(token=text, outcome="released") for text in texts]

    async def reply(self, reply: ReplyBody) -> SettledBody:
        """Ack and send, or neither."""
        if reply.token in self._refused:
            return self._refused[reply.token]
        try:
            messages = await parsed(self._served, self._account, reply.messages)
            answers_for = subscriber_of(self._mailboxes[reply.token])
            intake = Intake(self._served, self._principal, messages, answers_for)
            intake.require_mail()
            command = Settle(
                self._good[reply.token],
                intake.groups,
                budget=self._served.budget,
                taken_ms=self._taken_ms,
            )
            given = await self._session.execute(command)
        except MeshError as error:
            return _refused(reply.token, error)
        return SettledBody(token=reply.token, outcome="replied", receipts=intake.receipts(given))

    async def nack(self, nack: NackBody) -> SettledBody:
        if nack.token in self._refused:
            return self._refused[nack.token]
        command = Nack(
            self._good[nack.token],
            nack.code,
            nack.reason,
            nack.stack,
            nack.retryable,
            nack.delay_ms,
            nack.until_ms,
        )
        try:
            outcome: Any = await self._session.execute(command)
        except MeshError as error:
            return _refused(nack.token, error)
        return SettledBody(token=nack.token, outcome=outcome)

    async def extend(self, extend: ExtendBody) -> SettledBody:
        if extend.token in self._refused:
            return self._refused[extend.token]
        try:
            deadline = await self._session.execute(Extend(self._good[extend.token], extend.ms))
        except MeshError as error:
            return _refused(extend.token, error)
        return SettledBody(token=extend.token, outcome="extended", deadline=iso(deadline))

    async def finish(self, given: FinishBody) -> SettledBody:
        if given.token in self._refused:
            return self._refused[given.token]
        try:
            output = b"null" if given.result is UNSET else bytes(given.result)
            command = Finish(self._good[given.token], output, usage_from(given.usage))
            sound_json(command.output)
            status = await self._session.execute(command)
        except MeshError as error:
            return _refused(given.token, error)
        return SettledBody(token=given.token, outcome="finished", status=status)

    async def grow(self, given: GrowBody) -> SettledBody:
        if given.token in self._refused:
            return self._refused[given.token]
        try:
            asked = GrowStep(self._good[given.token], bytes(given.steps), usage_from(given.usage))
            command = await growth(self._served, self._account, asked)
            status = await self._session.execute(command)
        except MeshError as error:
            return _refused(given.token, error)
        return SettledBody(token=given.token, outcome="grown", status=status)

    async def fail(self, given: FailBody) -> SettledBody:
        if given.token in self._refused:
            return self._refused[given.token]
        try:
            command = Fail(self._good[given.token], given.code, given.reason, usage_from(given.usage))
            status = await self._session.execute(command)
        except MeshError as error:
            return _refused(given.token, error)
        return SettledBody(token=given.token, outcome="failed", status=status)

    async def report(self, given: ReportBody) -> SettledBody:
        if given.token in self._refused:
            return self._refused[given.token]
        try:
            command = Report(self._good[given.token], given.progress, usage_from(given.usage))
            await self._session.execute(command)
        except MeshError as error:
            return _refused(given.token, error)
        return SettledBody(token=given.token, outcome="reported")

    async def abandon(self, given: AbandonBody) -> SettledBody:
        if given.token in self._refused:
            return self._refused[given.token]
        try:
            stale = await self._session.execute(Abandon([self._good[given.token]], given.reason))
        except MeshError as error:
            return _refused(given.token, error)
        return _ended(given.token, "abandoned", bool(stale))


def _ended(text: str, outcome: Outcome, stale: bool) -> SettledBody:
    return SettledBody(token=text, outcome="lease_lost" if stale else outcome)


def _refused(text: str, error: MeshError) -> SettledBody:
    """An error of one token concerns that token; a node that cannot go on fails the whole request."""
    if isinstance(error, (Closed, DirectoryError)):
        raise error
    if isinstance(error, LeaseLost):
        return SettledBody(token=text, outcome="lease_lost")
    return SettledBody(
        token=text, outcome="refused", code=error.code, detail=error.message, hint=error.hint or UNSET
    )
