"""Finds the endpoint of a request. Only here errors become problem documents."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from starlette.routing import compile_path

from relaymesh.errors import MeshError, NotFound
from relaymesh.server.exchange import Disconnected, Exchange, Receive, Reply, Scope, Send, as_reply
from relaymesh.server.problem import Broken, MethodNotAllowed, problem_answer
from relaymesh.server.security.response import secured
from relaymesh.server.served import Served

log = logging.getLogger("relaymesh.server")

Endpoint = Callable[[Exchange], Awaitable[Reply | msgspec.Struct]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Operation(msgspec.Struct, frozen=True):
    """One row of the routing table."""

    method: str
    path: str
    """With `{name}` for one segment and `{name:path}` for several."""
    endpoint: Endpoint


class _Resource:
    """A path and what can be done with it."""

    __slots__ = ("methods", "shape", "template")

    def __init__(self, path: str) -> None:
        self.shape: re.Pattern[str]
        self.shape, self.template, _ = compile_path(path)
        self.methods: dict[str, Endpoint] = {}


class Router:
    """The ASGI app of a routing table; `otherwise` answers for paths and protocols it does not know.

    The first row that fits path and method wins, so `/v1/mailboxes/team/receive` can be both a
    mailbox that is read and a receive from mailbox `team`.
    """

    def __init__(self, served: Served, operations: Sequence[Operation], otherwise: App) -> None:
        self._served = served
        self._otherwise = otherwise
        by_path: dict[str, _Resource] = {}
        for operation in operations:
            resource = by_path.setdefault(operation.path, _Resource(operation.path))
            resource.methods[operation.method] = operation.endpoint
        self._exact = {path: resource for path, resource in by_path.items() if "{" not in path}
        self._shaped = [resource for path, resource in by_path.items() if "{" in path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._otherwise(scope, receive, send)
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        path: str = scope["path"]
        resource = self._exact.get(path)
        if resource is not None and method in resource.methods:
            await self._run(resource, method, Exchange(self._served, scope, receive, send, {}))
            return
        fitting = self._fitting(path) if resource is None else [(resource, {})]
        for resource, parameters in fitting:
            if method in resource.methods:
                exchange = Exchange(self._served, scope, receive, send, parameters)
                await self._run(resource, method, exchange)
                return
        if fitting:
            allowed = sorted({name for resource, _ in fitting for name in resource.methods})
            scope["relaymesh.route"] = fitting[0][0].template
            error = MethodNotAllowed(
                f"{scope['method'][:20]} is not for {path[:200]}", allowed=tuple(allowed)
            )
            await self._refuse(Exchange(self._served, scope, receive, send, {}), error)
        else:
            await self._otherwise(scope, receive, send)

    def _fitting(self, path: str) -> list[tuple[_Resource, dict[str, str]]]:
        found = []
        for resource in self._shaped:
            match = resource.shape.match(path)
            if match:
                found.append((resource, match.groupdict()))
        return found

    async def _run(self, resource: _Resource, method: str, exchange: Exchange) -> None:
        exchange.scope["relaymesh.route"] = resource.template
        self._served.counts.requests += 1
        try:
            reply = as_reply(await resource.methods[method](exchange))
            if method == "GET":
                exchange.check_room(len(reply.body))
        except MeshError as error:
            await self._refuse(exchange, error)
        except Disconnected:
            return
        except Exception:
            log.exception("%s %s failed", method, resource.template)
            await self._refuse(exchange, Broken("this request met a mistake in the node"))
        else:
            await exchange.reply(reply)

    async def _refuse(self, exchange: Exchange, error: MeshError) -> None:
        self._served.counts.problems += 1
        await exchange.answer(*problem_answer(error, exchange.scope["path"][:200]))


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001 - an ASGI app
    """The last app of all: there is no such path."""
    if scope["type"] == "websocket":
        hint = "the WebSocket is /v1/ws"
        await refuse_handshake(
            scope, send, NotFound(f"there is no WebSocket {scope['path'][:200]}", hint=hint)
        )
        return
    error = NotFound(f"there is no path {scope['path'][:200]}", hint="GET /openapi.json lists every path")
    status, headers, body = problem_answer(error, scope["path"])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse_handshake(scope: Scope, send: Send, error: MeshError) -> None:
    """Answer a WebSocket's handshake with a problem, in place of opening it."""
    status, headers, body = problem_answer(error, scope["path"][:200])
    start = {"type": "websocket.http.response.start", "status": status, "headers": secured(headers)}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": body})
