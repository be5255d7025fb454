"""The session over plain HTTP: one request for each call, long polls for deliveries.

For networks that let no WebSocket through. A request whose answer is lost is made again: messages have
their ids, letters their numbers, and a settle that finds its own work done is taken as done.
"""

from __future__ import annotations

import asyncio
import logging
import random
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec
from msgspec import UNSET, Raw

from relaymesh.client.clock import Elapsed
from relaymesh.client.messages import (
    batch_body,
    entry_of,
    envelope_of,
    letter_of,
    messages_of,
    ms_of,
    receipts_of,
    topic_body,
)
from relaymesh.client.problem import answer_of, error_of
from relaymesh.client.remote import Edited, Groups, RemoteSession, lost
from relaymesh.client.settings import RemoteSettings
from relaymesh.errors import Closed, InvalidSettings, MeshError, PayloadTooLarge, Unreachable
from relaymesh.kernel.address import DEFAULT_NAMESPACE, name_of, namespace_of
from relaymesh.kernel.commands import Nack
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.entry import Entry, Lease, format_token, parse_token
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import Receipt
from relaymesh.wire import api
from relaymesh.wire.api import settings_body
from relaymesh.wire.frames import Attempt
from relaymesh.wire.joining import joining
from relaymesh.wire.stats import MeshStats
from relaymesh.wire.types import Role

Answer = TypeVar("Answer")
log = logging.getLogger("relaymesh.client")

OFFLINE_CODES = frozenset({"CLOSED", "JOURNAL_POISONED"})
"""The node ends: the next one is asked."""
POLL_MS_MAX = 30_000
ANSWER_S = 30.0
"""How long an answer may take beyond the time it was given to wait."""

_encode = msgspec.json.Encoder().encode


class HttpSession(RemoteSession):
    """Calls on a node over HTTP, awaited. Belongs to the loop it was opened on."""

    def __init__(
        self, url: str, token: str | None, settings: RemoteSettings, clock: Elapsed | None = None
    ) -> None:
        super().__init__(url, clock)
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        try:
            # Loading the certificates takes half a second; plain HTTP has no use for them.
            verify = url.startswith("https:")
            self._http = httpx.AsyncClient(base_url=url, headers=headers, verify=verify, trust_env=False)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InvalidSettings(f"{url} is not the address of a node: {error}") from error
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
        answer: type[Answer],
        *,
        wait_s: float = 0.0,
        patience_s: float | None = None,
        or_status: int | None = None,
        **query: Any,
    ) -> tuple[Answer, bool]:
        """The answer, and whether the request had to be made again before it came.

        `or_status`: a status beside those of success whose body may be the answer.
        """
        content = body if isinstance(body, bytes) or body is None else _encode(body)
        if content is not None and len(content) > self._body_bytes_max:
            raise PayloadTooLarge(
                f"this takes a body of {len(content)} bytes; the node allows {self._body_bytes_max}",
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

    async def _get(self, path: str, answer: type[Answer], **query: Any) -> Answer:
        return (await self._ask("GET", path, None, answer, **query))[0]

    async def _post(self, path: str, body: msgspec.Struct | bytes, answer: type[Answer]) -> Answer:
        return (await self._ask("POST", path, body, answer))[0]

    # -- mailboxes

    async def open_mailbox(self, address: str, settings: MailboxSettings | None) -> None:
        body = api.OpenMailboxRequest(settings=None if settings is None else settings_body(settings))
        await self._ask("PUT", _mailbox(address), body, api.MailboxAnswer)

    async def register(
        self, agent: str, role: str | None, capabilities: Sequence[str], metadata: Mapping[str, Any] | None
    ) -> None:
        said = joining(agent, role=role, capabilities=capabilities, metadata=metadata)
        body = api.RegisterRequest(
            name=agent,
            role=cast(Role | None, role),
            capabilities=list(said.capabilities),
            metadata=dict(metadata or {}),
        )
        ack = await self._post("/v1/agents", body, api.HandshakeAck)
        self._agents.add(agent)
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat_every(ack.heartbeat_interval_ms / 1000))

    async def _beat_every(self, seconds: float) -> None:
        """Heartbeats of the agents that registered here. One that fails is followed by the next."""
        while True:
            await asyncio.sleep(seconds)
            for agent in sorted(self._agents):
                try:
                    path = f"/v1/agents/{quote(agent, safe='')}/heartbeat"
                    await self._post(path, api.HeartbeatRequest(), api.HeartbeatAnswer)
                except MeshError as error:
                    log.debug("a heartbeat of %s failed: %s", agent, error)

    async def subscribe(
        self,
        pattern: str,  # noqa: ARG002 - the mailbox's name has it
        mailbox: str,
        settings: MailboxSettings,
    ) -> None:
        body = api.SubscribeRequest(settings=settings_body(settings))
        await self._ask("PUT", _subscription(mailbox), body, api.SubscriptionAnswer)

    async def unsubscribe(self, mailbox: str) -> int:
        answer, _ = await self._ask("DELETE", _subscription(mailbox), b"", api.DroppedAnswer)
        return answer.dropped

    # -- sending

    async def send(self, groups: Groups, minted: bool, timeout: float | None) -> list[Receipt]:
        return await self._send("/v1/messages", batch_body(groups), minted, timeout)

    async def publish(
        self, topic: str, envelopes: Sequence[Envelope], minted: bool, timeout: float | None
    ) -> list[Receipt]:
        path = f"/v1/topics/{_quoted(topic)}/messages"
        return await self._send(path, topic_body(envelopes), minted, timeout)

    async def _send(self, path: str, body: bytes, minted: bool, timeout: float | None) -> list[Receipt]:
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
    ) -> list[Lease]:
        return await self._receive(mailbox, max, timeout, correlation_id)

    async def pull(self, mailbox: str, max: int) -> list[Lease]:
        return await self._receive(mailbox, max, None, patience_s=float("inf"))

    async def _receive(
        self,
        mailbox: str,
        max: int,
        timeout: float | None,
        correlation_id: str | None = None,
        patience_s: float | None = None,
    ) -> list[Lease]:
        """Poll until something came or the time is over."""
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
                await self.expect(mailbox, correlation_id)  # a node that started anew has forgotten it

    def _arrived(self, mailbox: str, bodies: Sequence[api.DeliveryBody]) -> list[Lease]:
        lanes: dict[str, int] = {}
        return self._held.arrived(
            mailbox,
            [_token(body.token) for body in bodies],
            [body.sequence for body in bodies],
            [body.attempt for body in bodies],
            [ms_of(body.deadline) for body in bodies],
            [envelope_of(body.message) for body in bodies],
            [-1 if body.lane is None else lanes.setdefault(body.lane, len(lanes)) for body in bodies],
            settled=bool(bodies) and bodies[0].settled,
            topics=[body.topic for body in bodies],
        )

    def give_back(self, leases: list[Lease]) -> None:
        task = asyncio.get_running_loop().create_task(self._try_release([lease.token for lease in leases]))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _try_release(self, tokens: list[int]) -> None:
        try:
            await self.release(tokens)
        except MeshError:
            return  # their leases end by themselves

    async def release(self, tokens: Sequence[int]) -> None:
        self._held.drop(tokens)
        await self._settle(api.SettleRequest(releases=_texts(tokens)))

    async def expect(
        self,
        mailbox: str,
        correlation_id: str,
        minted: bool = False,  # noqa: ARG002 - the node looks in any case
    ) -> None:
        body = api.ExpectRequest(correlation_id=correlation_id)
        await self._post(_mailbox(mailbox) + "/expect", body, api.MailboxAnswer)

    async def unexpect(self, mailbox: str, correlation_id: str) -> None:
        body = api.ExpectRequest(correlation_id=correlation_id)
        await self._post(_mailbox(mailbox) + "/unexpect", body, api.MailboxAnswer)

    # -- settling

    async def _settle(self, request: api.SettleRequest) -> tuple[list[api.SettledBody], bool]:
        answer, repeated = await self._ask("POST", "/v1/settle", request, api.SettledAnswer, or_status=409)
        return answer.results, repeated

    async def ack(self, tokens: Sequence[int], *, durable: bool = False, drop: bool = False) -> list[int]:
        texts = _texts(dict.fromkeys(tokens))
        if not texts:
            return []
        request = (
            api.SettleRequest(drops=texts, durable=durable)
            if drop
            else api.SettleRequest(acks=texts, durable=durable)
        )
        results, repeated = await self._settle(request)
        stale = [_token(each.token) for each in results if each.outcome in ("lease_lost", "refused")]
        stale = await self._really_stale(stale, repeated)
        self._held.drop(tokens)
        return stale

    async def nack(self, nack: Nack) -> str:
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
        _raise_refused(results[0])
        return state

    async def settle(self, token: int, groups: Groups) -> list[Receipt]:
        reply = api.ReplyBody(token=format_token(token), messages=messages_of(groups))
        results, repeated = await self._settle(api.SettleRequest(replies=[reply]))
        result = results[0]
        if result.outcome == "lease_lost":
            stale = await self._really_stale([token], repeated)
            self._held.drop([token])
            if stale:
                raise lost(token)
            return await self.send(groups, True, None)  # done in one step: the ids are known
        _raise_refused(result)
        self._held.drop([token])
        return receipts_of([] if result.receipts is UNSET else result.receipts, first=repeated)

    async def _ended(self, attempts: list[Attempt]) -> list[bool]:
        ended = []
        for mailbox, sequence, attempt, deadline in attempts:
            body = api.EndedRequest(sequence=sequence, attempt=attempt, deadline_ms=deadline)
            ended.append((await self._post(_mailbox(mailbox) + "/ended", body, api.EndedAnswer)).ended)
        return ended

    async def extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]:
        before = self._held.deadlines(extends)
        bodies = [api.ExtendBody(token=format_token(token), ms=ms) for token, ms in extends]
        results, _ = await self._settle(api.SettleRequest(extends=bodies))
        deadlines = [None if each.deadline is UNSET else ms_of(each.deadline) for each in results]
        self._held.extended(extends, before, deadlines)
        return deadlines

    async def complete(self, mailbox: str, sequence: int) -> bool:
        body = api.CompleteRequest(sequence=sequence)
        return (await self._post(_mailbox(mailbox) + "/complete", body, api.CompleteAnswer)).waits

    # -- looking after it

    async def dead_letters(self) -> list[DeadLetter]:
        """All of them, however many requests that takes."""
        letters: list[DeadLetter] = []
        more, query = True, {"status": "all", "limit": api.LETTERS_MAX}
        while more:
            answer = await self._get("/v1/dead-letters", api.DeadLettersAnswer, **query)
            letters += [letter_of(body) for body in answer.dead_letters]
            more = answer.more
            if more:
                query["after"] = letters[-1].dead_sequence
        return letters

    async def redrive(
        self, letters: Sequence[tuple[str, int]], to: str | None, edited: Edited
    ) -> list[int | None]:
        changed = edited or [None] * len(letters)
        choices = [_choice(number, each) for (_, number), each in zip(letters, changed, strict=True)]
        sequences: list[int | None] = []
        for start in range(0, len(choices), api.LETTERS_MAX):
            body = api.RedriveRequest(letters=choices[start : start + api.LETTERS_MAX], to=to)
            answer = await self._post("/v1/dead-letters/redrive", body, api.RedrivenAnswer)
            sequences += [each.sequence for each in answer.redriven]
        return sequences

    async def purge(self, letters: Sequence[tuple[str, int]]) -> int:
        numbers, purged = [number for _, number in letters], 0
        for start in range(0, len(numbers), api.LETTERS_MAX):
            body = api.PurgeRequest(letters=numbers[start : start + api.LETTERS_MAX])
            purged += (await self._post("/v1/dead-letters/purge", body, api.PurgedAnswer)).purged
        return purged

    async def reprioritise(self, mailbox: str, ids: frozenset[str] | None, priority: int) -> int:
        body = api.ReprioritiseRequest(priority=priority, ids=None if ids is None else sorted(ids))
        return (await self._post(_mailbox(mailbox) + "/reprioritise", body, api.ChangedAnswer)).changed

    async def set_breaker(self, mailbox: str, *, open: bool) -> None:
        body = api.BreakerRequest(open=open)
        await self._ask("PUT", _mailbox(mailbox) + "/breaker", body, api.MailboxAnswer)

    async def deliver_due(self) -> int:
        return (await self._post("/v1/due/deliver", b"{}", api.ChangedAnswer)).changed

    async def force_delayed(self, mailbox: str | None) -> int:
        body = api.ForceDelayedRequest(mailbox=mailbox)
        return (await self._post("/v1/delayed/deliver", body, api.ChangedAnswer)).changed

    async def stats(self) -> MeshStats:
        answer = await self._get("/v1/stats", api.StatsAnswer)
        return msgspec.convert(answer, MeshStats, from_attributes=True)

    async def peek(self, mailbox: str, limit: int) -> list[Entry]:
        bodies: list[api.EntryBody] = []
        while True:
            after = bodies[-1].sequence if bodies else 0
            limit_left = max(0, min(limit, 1_000) - len(bodies))
            answer = await self._get(_mailbox(mailbox), api.PeekAnswer, limit=limit_left, after=after)
            bodies += answer.entries
            if not answer.more:
                return [entry_of(body) for body in bodies]

    async def checkpoint(self) -> int | None:
        return (await self._post("/v1/checkpoint", b"{}", api.CheckpointAnswer)).sequence

    async def close(self, *, force: bool = False) -> None:
        """Give back what is held, unless in a hurry, and ask no more."""
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


def _is_away(error: MeshError) -> bool:
    return isinstance(error, Unreachable) or error.code in OFFLINE_CODES


def _raise_refused(result: api.SettledBody) -> None:
    if result.outcome == "refused":
        raise error_of(str(result.code), str(result.detail), "" if result.hint is UNSET else result.hint)


def _choice(dead_sequence: int, envelope: Envelope | None) -> api.LetterChoice:
    if envelope is None:
        return api.LetterChoice(dead_sequence=dead_sequence)
    if envelope.encoding == Encoding.BYTES:
        return api.LetterChoice(
            dead_sequence=dead_sequence, content_base64=b64encode(envelope.content).decode(), id=envelope.id
        )
    return api.LetterChoice(dead_sequence=dead_sequence, content=Raw(envelope.content), id=envelope.id)


def _texts(tokens: Any) -> list[str]:
    return [format_token(token) for token in tokens]


def _token(text: str) -> int:
    token = parse_token(text)
    assert token is not None, "the answer's type has checked its form"
    return token


def _quoted(name: str) -> str:
    return quote(name, safe="/")


def _mailbox(address: str) -> str:
    return f"/v1/mailboxes/{_quoted(address)}"


def _subscription(mailbox: str) -> str:
    pattern, _, name = name_of(mailbox).partition(":")
    return f"/v1/topics/{_quoted(f'{namespace_of(mailbox)}/{pattern}')}/subscriptions/{_quoted(name)}"
