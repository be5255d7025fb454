"""Opening the session that a mesh uses: a node in this process, or a remote one."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import Any

from relaymesh.client.connecting import connect, connect_threaded
from relaymesh.client.discovery import running_node
from relaymesh.client.settings import RemoteSettings
from relaymesh.errors import DirectoryInUse, InvalidSettings
from relaymesh.kernel.bounds import shown
from relaymesh.node.async_local import AsyncLocalSession
from relaymesh.node.clock import Clock
from relaymesh.node.local import LocalSession
from relaymesh.node.node import Node
from relaymesh.node.tuning import Given
from relaymesh.sdk.location import LocalLocation, RemoteLocation
from relaymesh.sdk.session import AsyncSession, Session

Location = LocalLocation | RemoteLocation


def checked_clock(clock: Any) -> Clock | None:
    """Return the clock if it has the methods of one."""
    for name in () if clock is None else ("wall_ms", "elapsed_ns", "awake_ns", "wait"):
        if isinstance(clock, type) or not callable(getattr(clock, name, None)):
            raise InvalidSettings(f"clock must have a method {name}(), and {shown(clock)} has none")
    return clock  # type: ignore[no-any-return]


def open_session(location: Location, clock: Clock | None) -> Session:
    """Raises `DirectoryInUse` when another process has the directory and is not a node that can be used."""
    if isinstance(location, LocalLocation):
        try:
            return LocalSession(Node(location.path, location.settings, clock=clock, given=_given()))
        except DirectoryInUse as error:
            location = _node_on(location, error)
    return connect_threaded(
        location.url, location.token, location.transport, location.settings, clock=clock, find=location.find
    )


async def open_async_session(location: Location, clock: Clock | None) -> AsyncSession:
    """The same on a running loop, without blocking it."""
    if isinstance(location, LocalLocation):
        try:
            return AsyncLocalSession(
                await asyncio.to_thread(Node, location.path, location.settings, clock=clock, given=_given())
            )
        except DirectoryInUse as error:
            location = await asyncio.to_thread(_node_on, location, error)
    return await connect(
        location.url, location.token, location.transport, location.settings, clock=clock, find=location.find
    )


def _given() -> Given:
    """The values that take precedence over the settings file of a directory that this process opens."""
    return Given(environment=os.environ.copy())


def _node_on(location: LocalLocation, error: DirectoryInUse) -> RemoteLocation:
    """The node that runs on the directory, if there is one and the arguments allow its use."""
    assert location.path is not None
    found = running_node(location.path)
    if found is None:
        raise DirectoryInUse(
            error.message,
            hint="stop the other process, or run relaymesh serve on the directory: every process can then "
            "use it, by its path or its URL. `fuser -v lock` in the directory (as root) names the holder",
        ) from error
    if not location.plain:
        raise DirectoryInUse(
            f"{error.message}, and its node has settings of its own",
            hint=f"leave out durability and settings to use the node at {found.url}",
        ) from error
    return RemoteLocation(
        url=found.url,
        token=found.token,
        transport="websocket",
        settings=RemoteSettings(),
        find=partial(running_node, location.path),
    )
