"""Opening a remote session. Imports are lazy: an embedded mesh needs no network code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaymesh.client.clock import Elapsed
from relaymesh.client.discovery import Find
from relaymesh.client.settings import RemoteSettings, Transport
from relaymesh.client.threaded import ThreadedSession
from relaymesh.errors import InvalidSettings

if TYPE_CHECKING:
    from relaymesh.client.threaded import AnySession


async def connect(
    url: str,
    token: str | None,
    transport: Transport,
    settings: RemoteSettings,
    *,
    clock: Elapsed | None = None,
    find: Find | None = None,
) -> AnySession:
    """A session with the node at this URL, on the running loop. `find` looks for the node's new address."""
    if transport == "websocket":
        from relaymesh.client.websocket import WebSocketSession  # noqa: PLC0415

        return await WebSocketSession(url, token, settings, clock, find).open()
    if transport == "http":
        from relaymesh.client.http import HttpSession  # noqa: PLC0415

        return await HttpSession(url, token, settings, clock).open()
    raise InvalidSettings(f"transport is {transport!r}: it must be websocket or http")


def connect_threaded(
    url: str,
    token: str | None,
    transport: Transport,
    settings: RemoteSettings,
    *,
    clock: Elapsed | None = None,
    find: Find | None = None,
) -> ThreadedSession:
    """The same for ordinary threads."""
    return ThreadedSession(lambda: connect(url, token, transport, settings, clock=clock, find=find))
