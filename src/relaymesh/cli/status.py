"""status: how a mesh stands, in one look."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relaymesh.cli.commands import mesh_command
from relaymesh.cli.looking import look_into
from relaymesh.cli.nodes import node_of
from relaymesh.cli.options import Call
from relaymesh.journal.layout import is_locked
from relaymesh.kernel.looks import counts_of
from relaymesh.node.disk import RealDisk
from relaymesh.wire.api import NodeAnswer, StatsAnswer

if TYPE_CHECKING:
    from relaymesh.client.asking import Asking


@mesh_command
def status(
    call: Call,
) -> None:
    """Say where the mesh is, whether a node serves it, and what it holds."""
    node = node_of(call)
    if node is None:
        call.output.record(_of_directory(call))
        return
    with node:
        call.output.record(_of_node(node))


def _of_node(node: Asking) -> dict[str, Any]:
    about = node.get("/v1/node", NodeAnswer)
    stats = node.get("/v1/stats", StatsAnswer)
    boxes = stats.mailboxes.values()
    return {
        "node": node.url,
        "version": about.version,
        "protocol": about.protocol,
        "namespace": about.namespace,
        "mailboxes": len(stats.mailboxes),
        "pending": sum(box.pending for box in boxes),
        "leased": sum(box.leased for box in boxes),
        "delayed": sum(box.delayed for box in boxes),
        "dead_letters": stats.dead_letters,
        "sequence": stats.sequence,
        "unsynced": stats.sequence - stats.synced,
        "store_lag": stats.store_lag,
        "epoch": stats.epoch,
    }


def _of_directory(call: Call) -> dict[str, Any]:
    path = call.existing()
    seen = look_into(path)
    state, boxes = seen.replayed.state, counts_of(None, seen.now, seen.replayed).values()
    return {
        "directory": str(path),
        "node": "none: a program has it open"
        if is_locked(RealDisk(path))
        else "none: relaymesh serve starts one",
        "mailboxes": len(boxes),
        "pending": sum(box.pending for box in boxes),
        "leased": sum(box.leased for box in boxes),
        "delayed": sum(box.delayed for box in boxes),
        "dead_letters": state.letters.count,
        "sequence": state.sequence,
        "epoch": state.epoch,
    }
