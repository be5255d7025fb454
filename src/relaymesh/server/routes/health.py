"""Whether the node lives, whether it takes messages, and who it is."""

from __future__ import annotations

import asyncio

import msgspec

from relaymesh.errors import MeshError
from relaymesh.server.counting import in_turns
from relaymesh.server.exchange import Exchange, Reply
from relaymesh.server.served import Served
from relaymesh.server.version import PROTOCOL_VERSION, VERSION
from relaymesh.wire.api import (
    CheckpointAnswer,
    HealthAnswer,
    MailboxStatsBody,
    NodeAnswer,
    ReadyAnswer,
    StatsAnswer,
)
from relaymesh.wire.api.receiving import RECEIVE_MAX, WAIT_MS_MAX
from relaymesh.wire.stats import MeshStats


async def healthz(exchange: Exchange) -> HealthAnswer:  # noqa: ARG001 - every endpoint gets one
    """The process responds. It returns nothing else, with any credential."""
    return HealthAnswer(status="ok")


async def readyz(exchange: Exchange) -> Reply:
    """200 while messages are accepted, else 503 with the reasons."""
    reasons = not_ready(exchange.served)
    answer = ReadyAnswer(status="not_ready" if reasons else "ready", reasons=reasons)
    return Reply(503 if reasons else 200, msgspec.json.encode(answer))


def not_ready(served: Served) -> list[str]:
    """Why a send would be refused now, without data of the mesh."""
    node = served.node
    if node.core.failure is not None or node.closed:
        return ["the journal takes no more records"]
    reasons = []
    if served.stopping.is_set():
        reasons.append("the node is stopping")
    if node.projector is not None and node.projector.lagging:
        reasons.append("the store is behind the journal")
    try:
        if not node.core.journal.room(0):
            reasons.append("the disk is too full")
    except (MeshError, OSError):
        reasons.append("the disk does not answer")
    return reasons


async def describe(exchange: Exchange) -> NodeAnswer:
    """What a client needs to know before it starts."""
    served = exchange.served
    return NodeAnswer(
        version=VERSION,
        protocol=PROTOCOL_VERSION,
        now=served.now,
        epoch=served.node.core.epoch,
        namespace=exchange.principal.namespace,
        payload_bytes_max=served.session.payload_bytes_max,
        body_bytes_max=served.settings.body_bytes_max,
        receive_max=RECEIVE_MAX,
        wait_ms_max=WAIT_MS_MAX,
    )


async def stats(exchange: Exchange) -> Reply:
    """Counters of every mailbox of the namespace, and of the node. Works even while the disk fails.

    An agent's own token sees that agent's mailboxes alone.
    With more than 250 mailboxes they may be some seconds old.
    """
    principal = exchange.principal
    principal.require_looking()

    async def show(found: MeshStats) -> bytes:
        parts: list[bytes] = []
        letters = 0
        for some in in_turns([each for each in found.mailboxes.items() if principal.may_look(each[0])]):
            bodies = {
                address: msgspec.convert(box, MailboxStatsBody, from_attributes=True) for address, box in some
            }
            letters += sum(box.dead_letters for box in bodies.values())
            parts.append(msgspec.json.encode(bodies)[1:-1])
            await asyncio.sleep(0)
        return msgspec.json.encode(
            StatsAnswer(
                mailboxes={},
                sequence=found.sequence,
                synced=found.synced,
                epoch=found.epoch,
                unrouted=found.unrouted,
                dead_letters=letters,
                remembered_ids=found.remembered_ids,
                journal_bytes=found.journal_bytes,
                store_lag=found.store_lag,
                duplicates=found.duplicates,
                refused=found.refused,
            )
        ).replace(b'"mailboxes":{}', b'"mailboxes":{' + b",".join(parts) + b"}", 1)

    return Reply(200, await exchange.served.counting.shown(f"stats {principal.view}", show))


async def checkpoint(exchange: Exchange) -> CheckpointAnswer:
    """Write a checkpoint now, so that the next start replays less. The node also does this by itself."""
    exchange.principal.require_everywhere()
    await exchange.body()
    return CheckpointAnswer(sequence=await asyncio.to_thread(exchange.served.node.checkpoint))
