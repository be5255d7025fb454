"""The journal for readers on other machines, such as `relaymesh tail`."""

from __future__ import annotations

import asyncio

from relaymesh.errors import NotFound
from relaymesh.journal import FIRST_SEQUENCE, Disk, Frame, read_frames
from relaymesh.server.exchange import Exchange
from relaymesh.server.served import Served
from relaymesh.wire.api.journal import FRAMES_BYTES_MAX, FrameBody, FramesAnswer, FramesQuery
from relaymesh.wire.payload import Get, with_content

QUERY = {"from": "from_sequence", "last": "last", "waitMs": "wait_ms"}
LOOK_AGAIN_S = 0.1


async def frames(exchange: Exchange) -> FramesAnswer:
    """Synced frames from a sequence on. They hold every namespace's messages: for an admin of all of them."""
    exchange.principal.require_everywhere()
    query = exchange.query_into(FramesQuery, QUERY)
    served = exchange.served
    disk = served.node.disk
    if disk is None:
        raise NotFound("a mesh in memory has no journal", hint="serve a directory: relaymesh serve --dir")
    start = max(FIRST_SEQUENCE, query.from_sequence)
    if query.last is not None:
        start = max(start, served.node.core.synced - query.last)
    await _something_behind(served, start, query.wait_ms / 1000)
    found = await asyncio.to_thread(_read, disk, start, served.node.payloads.get)
    behind = found[-1].first_sequence + found[-1].events if found else start
    return FramesAnswer(frames=found, next_sequence=behind)


def _body(frame: Frame, get: Get) -> FrameBody:
    return FrameBody(
        first_sequence=frame.first_sequence,
        events=frame.events,
        written_at_ns=frame.written_at_ns,
        payload=with_content(frame.payload, get),
    )


async def _something_behind(served: Served, start: int, seconds: float) -> None:
    """Come back when an event from `start` on is synced, when the time is over, or when the node stops."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while served.node.core.synced <= start and (left := end - loop.time()) > 0:
        try:
            await asyncio.wait_for(served.stopping.wait(), min(LOOK_AGAIN_S, left))
        except TimeoutError:
            continue
        return


def _read(disk: Disk, start: int, get: Get) -> list[FrameBody]:
    """In a thread of its own: it reads from the disk. `get`: reads payload files."""
    found: list[FrameBody] = []
    size = 0
    for frame in read_frames(disk, start):
        found.append(_body(frame, get))
        size += len(found[-1].payload)
        if size >= FRAMES_BYTES_MAX:
            break
    return found
