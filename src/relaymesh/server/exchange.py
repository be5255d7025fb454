"""One HTTP request and its answer on raw ASGI: the body is read once and decoded into its type."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

import msgspec

from relaymesh.errors import InvalidEnvelope, PayloadTooLarge, RateLimited
from relaymesh.server.problem import UnsupportedMediaType
from relaymesh.server.security.accounts import ACCOUNT_KEY, Account, account_of
from relaymesh.server.security.arrival import CONNECTION_KEY
from relaymesh.server.security.principal import Principal, principal_of
from relaymesh.server.security.rates import BYTES_A_WRITE, MESSAGES_A_WRITE, cost_of
from relaymesh.server.security.trail import AGENT_KEY
from relaymesh.server.served import Served

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

T = TypeVar("T")

JSON = b"application/json"
VALUES_MAX = 400_000
"""Commas in a body that is decoded in one call: some ten milliseconds' worth. Messages are split first."""
PART_BYTES = 262_144
"""A longer answer is written to the socket in parts, as the client reads."""
INTEGER_HINT = "an integer is written without a decimal point: 5, not 5.0"

_encode = msgspec.json.Encoder().encode


class Disconnected(Exception):
    """The client disconnected before its request was complete: no answer can be sent."""


class Reply(msgspec.Struct, frozen=True):
    """An answer that is more than a body with status 200."""

    status: int
    body: bytes
    media_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Exchange:
    """What an endpoint gets: the credential, the path and the body."""

    __slots__ = ("_receive", "_send", "parameters", "scope", "served")

    def __init__(
        self, served: Served, scope: Scope, receive: Receive, send: Send, parameters: dict[str, str]
    ) -> None:
        self.served = served
        self.scope = scope
        self.parameters = parameters
        self._receive = receive
        self._send = send

    @property
    def principal(self) -> Principal:
        return principal_of(self.scope)

    @property
    def account(self) -> Account:
        return account_of(self.scope)

    def acted_as(self, agents: Collection[str]) -> None:
        """Tell the audit for which agents this request acts: their addresses."""
        self.scope[AGENT_KEY] = agents

    # -- the request

    async def body(self) -> bytes:
        """The whole body, which must be declared as JSON."""
        event = await self._receive()
        self._still_there(event)
        data: bytes = event.get("body", b"")
        if event.get("more_body", False):
            data = await self._rest(data)
        self._check_size(len(data))
        if data:
            self._check_media_type()
        return data

    async def _rest(self, first: bytes) -> bytes:
        parts, size, more = [first], len(first), True
        while more:
            event = await self._receive()
            self._still_there(event)
            parts.append(event.get("body", b""))
            size += len(parts[-1])
            self._check_size(size)
            more = event.get("more_body", False)
        return b"".join(parts)

    def _still_there(self, event: Event) -> None:
        if event["type"] == "http.disconnect":
            raise Disconnected

    def _check_size(self, size: int) -> None:
        most = self.served.settings.body_bytes_max
        if size > most:
            raise PayloadTooLarge(
                f"the body is larger than {most} bytes",
                hint="send it in several requests, or a reference to it",
            )

    def _check_media_type(self) -> None:
        for name, value in self.scope["headers"]:
            if name == b"content-type":
                media_type = value.partition(b";")[0].strip().lower()
                if media_type == JSON or (
                    media_type.startswith(b"application/") and media_type.endswith(b"+json")
                ):
                    return
                raise UnsupportedMediaType(f"the body is {media_type.decode('latin-1')[:80]!r}, not JSON")
        raise UnsupportedMediaType("the body does not say what it is")

    async def decode(self, kind: type[T]) -> T:
        """The body as a request of this kind; no body at all is an empty object."""
        data = await self.body() or b"{}"
        if len(data) > VALUES_MAX and data.count(b",") > VALUES_MAX:
            raise InvalidEnvelope(
                f"the body holds more than {VALUES_MAX} values", hint="send it in several requests"
            )
        return decode_body(data, kind)

    def charge(self, messages: int) -> None:
        """Charge the messages of the body: each 25 count as one write."""
        if messages > MESSAGES_A_WRITE:
            size = 0
            for name, value in self.scope["headers"]:
                if name == b"content-length":
                    size = int(value)
            paid = cost_of(1, 0, size)
            self.account.owe(max(0.0, cost_of(1, messages, 0) - paid))

    def query(self) -> dict[str, list[str]]:
        """The query of the URL. Raises for one that is not text."""
        text = self.scope.get("query_string", b"")
        if not text:
            return {}
        try:
            return parse_qs(
                text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1_000
            )
        except ValueError:
            raise InvalidEnvelope("the query of the URL cannot be read") from None

    def query_into(self, kind: type[T], names: dict[str, str], *, many: frozenset[str] = frozenset()) -> T:
        """The query as a request of this kind: `names` maps its parameters to fields."""
        given: dict[str, Any] = {}
        for name, values in self.query().items():
            field = names.get(name)
            if field is None:
                raise InvalidEnvelope(
                    f"there is no query parameter {name[:80]!r}", hint=f"there are {', '.join(names)}"
                )
            if name not in many and len(values) > 1:
                raise InvalidEnvelope(f"query parameter {name!r} is given {len(values)} times")
            given[field] = values if name in many else values[0]
        try:
            return msgspec.convert(given, kind, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidEnvelope(f"the query of the URL: {error}") from None

    async def disconnected(self) -> None:
        """Return when the client has disconnected. Only call it after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    # -- the answer

    async def answer(self, status: int, headers: Headers, body: bytes) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        if len(body) > PART_BYTES and ACCOUNT_KEY in self.scope:
            await self._send_parts(body)
        else:
            await self._send({"type": "http.response.body", "body": body})

    async def _send_parts(self, body: bytes) -> None:
        """Send a long answer as the client reads it, no faster than its rate. It counts as under way until
        then."""
        account, loop = self.account, asyncio.get_running_loop()
        socket = self.scope.get(CONNECTION_KEY)
        account.outgoing += len(body)
        try:
            for start in range(0, len(body), PART_BYTES):
                if start and socket is not None and (pause_s := socket.bulk_s(PART_BYTES)):
                    await asyncio.sleep(pause_s)
                while wait := account.take(loop.time(), PART_BYTES / BYTES_A_WRITE):  # noqa: ASYNC110  the rate says when
                    await asyncio.sleep(wait)
                part, more = body[start : start + PART_BYTES], start + PART_BYTES < len(body)
                await self._send({"type": "http.response.body", "body": part, "more_body": more})
        finally:
            account.outgoing -= len(body)

    def check_room(self, size: int) -> None:
        """Raise when too many answers of this credential wait to be read."""
        if size > PART_BYTES and ACCOUNT_KEY in self.scope and not self.account.has_room_for(size):
            raise RateLimited("too many answers wait to be read", hint="read them first", retry_after=1.0)

    async def reply(self, reply: Reply) -> None:
        length = str(len(reply.body)).encode()
        headers = [(b"content-type", reply.media_type), (b"content-length", length), *reply.headers]
        await self.answer(reply.status, headers, reply.body)


def as_reply(answer: Reply | msgspec.Struct) -> Reply:
    """What an endpoint returned, encoded."""
    return answer if isinstance(answer, Reply) else Reply(200, _encode(answer))


def accepted(answer: msgspec.Struct) -> Reply:
    """202: the mesh has accepted the message."""
    return Reply(202, _encode(answer))


def decode_body(data: bytes | msgspec.Raw, kind: type[T]) -> T:
    """JSON into its type. Raises `InvalidEnvelope`, naming the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        hint = INTEGER_HINT if "`int`, got `float`" in str(error) else None
        raise InvalidEnvelope(f"the body: {error}", hint=hint) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEnvelope(f"the body is not sound JSON: {error}") from None
