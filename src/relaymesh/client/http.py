"""The session over plain HTTP: one HTTP request per call, long polls for deliveries.

For networks that let no WebSocket through. A request whose answer is lost is repeated. That is safe: messages
have ids, dead letters have numbers, and a settle that was already done by its first try counts as done.
"""

from __future__ import annotations

import asyncio
import logging
import random
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec
from msgspec import UNSET, Raw

from relaymesh.client.clock import Elapsed
from relaymesh.client.http_retention import HttpRetention
from relaymesh.client.http_schedules import OF_SCHEDULES, HttpSchedules
from relaymesh.client.http_tasks import OF_TASKS, POLL_MS_MAX, raise_refused, texts_of, token_in
from relaymesh.client.messages import (
    batch_body,
    envelope_of,
    letter_of,
    messages_of,
    ms_of,
    pending_of,
    receipts_of,
    topic_body,
)
from relaymesh.client.problem import answer_of
from relaymesh.client.remote import lost
from relaymesh.client.settings import RemoteSettings
from relaymesh.errors import Closed, InvalidSettings, MeshError, PayloadTooLarge, Unreachable
from relaymesh.kernel.address import DEFAULT_NAMESPACE, name_of, namespace_of
from relaymesh.kernel.commands import (
    Ack,
    Complete,
    Expect,
    Extend,
    ExtendAll,
    ForceDelayed,
    Nack,
    OpenMailbox,
    Publish,
    PurgeDeadLetters,
    Redrive,
    RegisterAgent,
    Release,
    Reprioritise,
    Send,
    SetBreaker,
    Settle,
    Subscribe,
    Tick,
    Unexpect,
    Unsubscribe,
)
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.deliveries import NO_LANE, Deliveries
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.query import DeadLetters, ListWorkflows, Peek
from relaymesh.kernel.request import Request, Result
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.tasks.commands import (
    RemoveVersions,
)
from relaymesh.kernel.token import format_token
from relaymesh.wire import api
from relaymesh.wire.api import settings_body
from relaymesh.wire.frames import Attempt
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.letter_report import FindReport
from relaymesh.wire.retention import PreviewPurge, Purge
from relaymesh.wire.settings import SettingShown, SettingsShown, ShowSettings
from relaymesh.wire.stats import MeshStats
from relaymesh.wire.tasks import (
    FindWorkflow,
    PutWorkflow,
)
from relaymesh.wire.types import Role

Body = TypeVar("Body")
log = logging.getLogger("relaymesh.client")

OFFLINE_CODES = frozenset({"CLOSED", "JOURNAL_POISONED"})
"""The node is shutting down: repeat the request at the next one."""
ANSWER_S = 30.0
"""How long an answer may take beyond the wait that was asked for."""

_encode = msgspec.json.Encoder().encode


class HttpSession(HttpSchedules, HttpRetention):
    """Requests to a node over HTTP, awaited. Belongs to the loop it was opened on."""

    def __init__(
        self, url: str, token: str | None, settings: RemoteSettings, clock: Elapsed | None = None
    ) -> None:
        super().__init__(url, clock)
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        try:
            # Loading the certificates takes half a second; plain HTTP does not need them.
            verify = url.startswith("https:")
            self._http = httpx.AsyncClient(base_url=url, headers=headers, verify=verify, trust_env=False)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InvalidSettings(
                f"{url} is not the address of a node: {error}", hint="http://host:port"
            ) from error
        self._settings = settings
        self._wait_ms_max = POLL_MS_MAX
        self._body_bytes_max = 1 << 62
        self._receive_max = 1_000
        self._closed = False
        self._telling: set[asyncio.Task[None]] = set()
        self._agents: set[str] = set()
        self._beating: asyncio.Task[None] | None = None

    async def open(self) -> HttpSession:
        try:
            node, _ = await self._ask(
                "GET", "/v1/node", None, api.NodeAnswer, patience_s=self._settings.connect_s
            )
        except BaseException:
            await self._http.aclose()
            raise
        self.namespace = DEFAULT_NAMESPACE if node.namespace == "*" else node.namespace
        self.payload_bytes_max = node.payload_bytes_max
        self._wait_ms_max = min(POLL_MS_MAX, node.wait_ms_max)
        self._body_bytes_max = node.body_bytes_max
        self._receive_max = node.receive_max
        self._heard(node.now)
        return self

    @property
    def failure(self) -> MeshError | None:
        return Closed("this mesh is closed") if self._closed else None

    # -- asking

    async def _ask(
        self,
        method: str,
        path: str,
        body: msgspec.Struct | bytes | None,
        answer: type[Body],
        *,
        wait_s: float = 0.0,
        patience_s: float | None = None,
        or_status: int | None = None,
        **query: Any,
    ) -> tuple[Body, bool]:
        """The answer, and whether the request had to be repeated.

        `or_status`: a status besides those of success whose body may be the answer.
        """
        content = body if isinstance(body, bytes) or body is None else _encode(body)
        if content is not None and len(content) > self._body_bytes_max:
            raise PayloadTooLarge(
                f"the request has a body of {len(content)} bytes; the node allows {self._body_bytes_max}",
                hint="send it in several calls",
            )
        loop = asyncio.get_running_loop()
        patience_s = self._settings.unreachable_s if patience_s is None else patience_s
        failing_since: float | None = None
        failures = 0
        while True:
            if self._closed:
                raise Closed("this mesh is closed")
            try:
                response = await self._http.request(
                    method, path, content=content, params=query or None, timeout=wait_s + ANSWER_S
                )
                return answer_of(response, answer, or_status), failures > 0
            except httpx.TransportError as error:
                reason = f"{type(error).__name__} {error}".strip()
            except MeshError as error:
                if not _is_away(error):
                    raise
                reason = error.message
            failures += 1
            now = loop.time()
            failing_since = now if failing_since is None else failing_since
            if now - failing_since >= patience_s:
                raise Unreachable(
                    f"the node at {self.url} does not answer for {patience_s:g} s ({reason});"
                    " what was sent may have been accepted"
                )
            await asyncio.sleep(self._pause_s(failures))

    def _pause_s(self, failures: int) -> float:
        settings = self._settings
        most = min(settings.backoff_s_max, settings.backoff_s_min * 2 ** min(failures, 30))
        return random.uniform(settings.backoff_s_min, most)

    async def _get(self, path: str, answer: type[Body], **query: Any) -> Body:
        return (await self._ask("GET", path, None, answer, **query))[0]

    async def _post(self, path: str, body: msgspec.Struct | bytes, answer: type[Body]) -> Body:
        return (await self._ask("POST", path, body, answer))[0]

    # -- requests

    async def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Result:
        carry = _CARRIERS[request.__class__]
        result: Result = await carry(self, request, timeout=timeout, durable=durable)
        return result

    # -- mailboxes

    async def _open_mailbox(self, command: OpenMailbox, **_: Any) -> None:
        settings = command.settings
        body = api.OpenMailboxRequest(settings=None if settings is None else settings_body(settings))
        await self._ask("PUT", _mailbox(command.mailbox), body, api.MailboxAnswer)

    async def _register(self, command: RegisterAgent, **_: Any) -> None:
        body = api.RegisterRequest(
            name=command.agent,
            role=cast(Role | None, command.role or None),
            capabilities=list(command.capabilities),
            metadata=msgspec.json.decode(command.metadata, type=dict[str, Any]),
            settles=command.settles,
        )
        ack = await self._post("/v1/agents", body, api.HandshakeAck)
        self._agents.add(command.agent)
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat_every(ack.heartbeat_interval_ms / 1000))

    async def _beat_every(self, seconds: float) -> None:
        """Send heartbeats of the agents that registered here. A failed one is not repeated."""
        while True:
            await asyncio.sleep(seconds)
            for agent in sorted(self._agents):
                try:
                    path = f"/v1/agents/{quote(agent, safe='')}/heartbeat"
                    await self._post(path, api.HeartbeatRequest(), api.HeartbeatAnswer)
                except MeshError as error:
                    log.debug("a heartbeat of %s failed: %s", agent, error)

    async def _subscribe(self, command: Subscribe, **_: Any) -> None:
        """The mailbox name matches the pattern."""
        body = api.SubscribeRequest(settings=settings_body(command.settings))
        await self._ask("PUT", _subscription(command.mailbox), body, api.SubscriptionAnswer)

    async def _unsubscribe(self, command: Unsubscribe, **_: Any) -> int:
        answer, _again = await self._ask("DELETE", _subscription(command.mailbox), b"", api.DroppedAnswer)
        return answer.dropped

    # -- sending

    async def _send(self, command: Send, *, timeout: float | None, **_: Any) -> list[Receipt]:
        return await self._post_messages("/v1/messages", batch_body(command.groups), command.minted, timeout)

    async def _publish(self, command: Publish, *, timeout: float | None, **_: Any) -> list[Receipt]:
        path = f"/v1/topics/{_quoted(command.topic)}/messages"
        return await self._post_messages(path, topic_body(command.envelopes), command.minted, timeout)

    async def _post_messages(
        self, path: str, body: bytes, minted: bool, timeout: float | None
    ) -> list[Receipt]:
        if body == b"[]":
            return []
        query = {"timeout_ms": min(60_000, round(timeout * 1000))} if timeout else {}
        answer, repeated = await self._ask(
            "POST", path, body, api.ReceiptsAnswer, wait_s=timeout or 0.0, **query
        )
        return receipts_of(answer.receipts, first=minted and repeated)

    # -- receiving

    async def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> Deliveries:
        return await self._receive(mailbox, max, timeout, correlation_id)

    async def pull(self, mailbox: str, max: int) -> Deliveries:
        return await self._receive(mailbox, max, None, patience_s=float("inf"))

    async def _receive(
        self,
        mailbox: str,
        max: int,
        timeout: float | None,
        correlation_id: str | None = None,
        patience_s: float | None = None,
    ) -> Deliveries:
        """Poll until a delivery came or the time is over."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            left_ms = self._wait_ms_max if deadline is None else round((deadline - loop.time()) * 1000)
            wait_ms = min(self._wait_ms_max, left_ms) if left_ms > 0 else 0
            body = api.ReceiveRequest(
                max=min(max, self._receive_max), wait_ms=wait_ms, correlation_id=correlation_id
            )
            answer, repeated = await self._ask(
                "POST",
                _mailbox(mailbox) + "/receive",
                body,
                api.DeliveriesAnswer,
                wait_s=wait_ms / 1000,
                patience_s=patience_s,
            )
            self._heard(answer.now)
            if answer.deliveries or (deadline is not None and loop.time() >= deadline):
                return self._arrived(mailbox, answer.deliveries)
            if repeated and correlation_id is not None:
                await self._expect(Expect(mailbox, correlation_id))  # a restarted node has forgotten it

    def _arrived(self, mailbox: str, bodies: Sequence[api.DeliveryBody]) -> Deliveries:
        keys: dict[str, int] = {}
        lanes = [NO_LANE if body.lane is None else keys.setdefault(body.lane, len(keys)) for body in bodies]
        got = Deliveries(
            mailbox,
            [token_in(body.token) for body in bodies],
            [body.sequence for body in bodies],
            [body.attempt for body in bodies],
            [ms_of(body.deadline) for body in bodies],
            [envelope_of(body.message) for body in bodies],
            lanes if keys else None,
            [body.topic for body in bodies],
            bool(bodies) and bodies[0].settled,
            tuple(keys),
        )
        self._held.arrived(got)
        return got

    def give_back(self, tokens: Sequence[int]) -> None:
        task = asyncio.get_running_loop().create_task(self._try_release(tokens))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _try_release(self, tokens: Sequence[int]) -> None:
        try:
            await self._release(Release(tokens))
        except MeshError:
            return  # their leases expire

    async def _release(self, command: Release, **_: Any) -> None:
        self._held.drop(command.tokens)
        await self._settle(api.SettleRequest(releases=texts_of(command.tokens)))

    async def _expect(self, command: Expect, **_: Any) -> None:
        body = api.ExpectRequest(correlation_id=command.correlation_id)
        await self._post(_mailbox(command.mailbox) + "/expect", body, api.MailboxAnswer)

    async def _unexpect(self, command: Unexpect, **_: Any) -> None:
        body = api.ExpectRequest(correlation_id=command.correlation_id)
        await self._post(_mailbox(command.mailbox) + "/unexpect", body, api.MailboxAnswer)

    # -- settling

    async def _settle(self, request: api.SettleRequest) -> tuple[list[api.SettledBody], bool]:
        answer, repeated = await self._ask("POST", "/v1/settle", request, api.SettledAnswer, or_status=409)
        return answer.results, repeated

    async def _ack(self, command: Ack, *, durable: bool, **_: Any) -> list[int]:
        texts = texts_of(dict.fromkeys(command.tokens))
        if not texts:
            return []
        request = (
            api.SettleRequest(drops=texts, durable=durable)
            if command.drop
            else api.SettleRequest(acks=texts, durable=durable, settles=True)
        )
        results, repeated = await self._settle(request)
        stale = [token_in(each.token) for each in results if each.outcome in ("lease_lost", "refused")]
        if stale and repeated:
            stale = await self._really_stale(stale)
        self._held.drop(command.tokens)
        return stale

    async def _nack(self, nack: Nack, **_: Any) -> str:
        body = api.NackBody(
            token=format_token(nack.token),
            code=nack.code,
            reason=nack.reason,
            stack=nack.stack,
            retryable=nack.retryable,
            delay_ms=nack.delay_ms,
            until_ms=nack.until,
        )
        begun = self.now()
        results, repeated = await self._settle(api.SettleRequest(nacks=[body]))
        outcome = results[0].outcome
        state = self._nacked(nack.token, None if outcome == "lease_lost" else outcome, begun, repeated)
        raise_refused(results[0])
        return state

    async def _reply(self, command: Settle, **_: Any) -> list[Receipt]:
        token, groups = command.token, command.groups
        reply = api.ReplyBody(token=format_token(token), messages=messages_of(groups))
        results, repeated = await self._settle(api.SettleRequest(replies=[reply], settles=True))
        result = results[0]
        if result.outcome == "lease_lost":
            stale = await self._really_stale([token]) if repeated else [token]
            self._held.drop([token])
            if stale:
                raise lost(token)
            # Sends and settle are one step: their ids are known.
            return await self._send(Send(groups, True), timeout=None)
        raise_refused(result)
        self._held.drop([token])
        return receipts_of([] if result.receipts is UNSET else result.receipts, first=repeated)

    async def _ended(self, attempts: list[Attempt]) -> list[bool]:
        ended = []
        for mailbox, sequence, attempt, deadline in attempts:
            body = api.EndedRequest(sequence=sequence, attempt=attempt, deadline_ms=deadline)
            ended.append((await self._post(_mailbox(mailbox) + "/ended", body, api.EndedAnswer)).ended)
        return ended

    async def _extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]:
        before = self._held.deadlines(extends)
        bodies = [api.ExtendBody(token=format_token(token), ms=ms) for token, ms in extends]
        results, _ = await self._settle(api.SettleRequest(extends=bodies))
        deadlines = [None if each.deadline is UNSET else ms_of(each.deadline) for each in results]
        self._held.extended(extends, before, deadlines)
        return deadlines

    async def _complete(self, command: Complete, **_: Any) -> bool:
        body = api.CompleteRequest(sequence=command.sequence)
        path = _mailbox(command.mailbox) + "/complete"
        return (await self._post(path, body, api.CompleteAnswer)).waits

    # -- looking after it

    async def _dead_letters(self, query: DeadLetters, **_: Any) -> list[DeadLetter]:  # noqa: ARG002
        """All rows, in as many requests as it takes."""
        letters: list[DeadLetter] = []
        more, asked = True, {"status": "all", "limit": api.LETTERS_MAX}
        while more:
            answer = await self._get("/v1/dead-letters", api.DeadLettersAnswer, **asked)
            letters += [letter_of(body) for body in answer.dead_letters]
            more = answer.more
            if more:
                asked["after"] = letters[-1].dead_sequence
        return letters

    async def _redrive(self, command: Redrive, **_: Any) -> list[int | None]:
        letters = command.letters
        changed = command.edited or [None] * len(letters)
        choices = [_choice(number, each) for (_, number), each in zip(letters, changed, strict=True)]
        sequences: list[int | None] = []
        for start in range(0, len(choices), api.LETTERS_MAX):
            body = api.RedriveRequest(letters=choices[start : start + api.LETTERS_MAX], to=command.to)
            answer = await self._post("/v1/dead-letters/redrive", body, api.RedrivenAnswer)
            sequences += [each.sequence for each in answer.redriven]
        return sequences

    async def _purge(self, command: PurgeDeadLetters, **_: Any) -> int:
        numbers, purged = [number for _, number in command.letters], 0
        for start in range(0, len(numbers), api.LETTERS_MAX):
            body = api.PurgeRequest(letters=numbers[start : start + api.LETTERS_MAX])
            purged += (await self._post("/v1/dead-letters/purge", body, api.PurgedAnswer)).purged
        return purged

    async def _reprioritise(self, command: Reprioritise, **_: Any) -> int:
        ids = None if command.ids is None else sorted(command.ids)
        body = api.ReprioritiseRequest(priority=command.priority, ids=ids)
        path = _mailbox(command.mailbox) + "/reprioritise"
        return (await self._post(path, body, api.ChangedAnswer)).changed

    async def _set_breaker(self, command: SetBreaker, **_: Any) -> None:
        body = api.BreakerRequest(open=command.open)
        await self._ask("PUT", _mailbox(command.mailbox) + "/breaker", body, api.MailboxAnswer)

    async def _deliver_due(self, command: Tick, **_: Any) -> int:  # noqa: ARG002 - takes nothing
        return (await self._post("/v1/due/deliver", b"{}", api.ChangedAnswer)).changed

    async def _force_delayed(self, command: ForceDelayed, **_: Any) -> int:
        body = api.ForceDelayedRequest(mailbox=command.mailbox)
        return (await self._post("/v1/delayed/deliver", body, api.ChangedAnswer)).changed

    async def _stats(self, request: Stats, **_: Any) -> MeshStats:  # noqa: ARG002 - takes nothing
        answer = await self._get("/v1/stats", api.StatsAnswer)
        return msgspec.convert(answer, MeshStats, from_attributes=True)

    async def _peek(self, query: Peek, **_: Any) -> list[Pending]:
        bodies: list[api.EntryBody] = []
        while True:
            after = bodies[-1].sequence if bodies else 0
            limit_left = max(0, min(query.limit, 1_000) - len(bodies))
            answer = await self._get(_mailbox(query.mailbox), api.PeekAnswer, limit=limit_left, after=after)
            bodies += answer.entries
            if not answer.more:
                return [pending_of(body) for body in bodies]

    async def _checkpoint(self, request: Checkpoint, **_: Any) -> int | None:  # noqa: ARG002 - takes nothing
        return (await self._post("/v1/checkpoint", b"{}", api.CheckpointAnswer)).sequence

    async def _show_settings(self, request: ShowSettings, **_: Any) -> SettingsShown:  # noqa: ARG002 - takes nothing
        answer = await self._get("/v1/settings", api.SettingsAnswer)
        settings = [msgspec.convert(each, SettingShown, from_attributes=True) for each in answer.settings]
        return SettingsShown(settings, answer.file, ms_of(answer.loaded_at), answer.problem)

    async def close(self, *, force: bool = False) -> None:
        """Give back what is held, unless `force`, and make no more requests."""
        if self._closed:
            return
        if self._beating is not None:
            self._beating.cancel()
        tokens = self._held.tokens
        if tokens and not force:
            await asyncio.wait({asyncio.ensure_future(self._try_release(tokens))}, timeout=2.0)
        self._closed = True
        self._held.clear()
        await self._http.aclose()


_CARRIERS: dict[type[Request[Any]], Callable[..., Awaitable[Any]]] = {
    Send: HttpSession._send,
    Publish: HttpSession._publish,
    Ack: HttpSession._ack,
    Nack: HttpSession._nack,
    Settle: HttpSession._reply,
    Release: HttpSession._release,
    Extend: HttpSession._extend,
    ExtendAll: HttpSession._extend_each,
    Complete: HttpSession._complete,
    Expect: HttpSession._expect,
    Unexpect: HttpSession._unexpect,
    OpenMailbox: HttpSession._open_mailbox,
    RegisterAgent: HttpSession._register,
    Subscribe: HttpSession._subscribe,
    Unsubscribe: HttpSession._unsubscribe,
    DeadLetters: HttpSession._dead_letters,
    Redrive: HttpSession._redrive,
    PurgeDeadLetters: HttpSession._purge,
    Reprioritise: HttpSession._reprioritise,
    SetBreaker: HttpSession._set_breaker,
    Tick: HttpSession._deliver_due,
    ForceDelayed: HttpSession._force_delayed,
    Stats: HttpSession._stats,
    Peek: HttpSession._peek,
    Checkpoint: HttpSession._checkpoint,
    ShowSettings: HttpSession._show_settings,
    PreviewPurge: HttpSession._preview_purge,
    Purge: HttpSession._purge_old,
    FindReport: HttpSession._find_report,
    **OF_TASKS,
    **OF_SCHEDULES,
    PutWorkflow: HttpSession._put_workflow,
    FindWorkflow: HttpSession._find_workflow,
    ListWorkflows: HttpSession._workflows,
    RemoveVersions: HttpSession._remove_workflow,
}
"""Each request and its route."""


def _is_away(error: MeshError) -> bool:
    return isinstance(error, Unreachable) or error.code in OFFLINE_CODES


def _choice(dead_sequence: int, envelope: Envelope | None) -> api.LetterChoice:
    if envelope is None:
        return api.LetterChoice(dead_sequence=dead_sequence)
    if envelope.encoding == Encoding.BYTES:
        return api.LetterChoice(
            dead_sequence=dead_sequence, content_base64=b64encode(envelope.content).decode(), id=envelope.id
        )
    return api.LetterChoice(dead_sequence=dead_sequence, content=Raw(envelope.content), id=envelope.id)


def _quoted(name: str) -> str:
    return quote(name, safe="/")


def _mailbox(address: str) -> str:
    return f"/v1/mailboxes/{_quoted(address)}"


def _subscription(mailbox: str) -> str:
    pattern, _, name = name_of(mailbox).partition(":")
    return f"/v1/topics/{_quoted(f'{namespace_of(mailbox)}/{pattern}')}/subscriptions/{_quoted(name)}"
