"""Which node a command asks: the one that is named, or the one that runs on the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from relaymesh.cli.options import Call
from relaymesh.client.discovery import running_node
from relaymesh.journal.layout import is_locked
from relaymesh.node.disk import RealDisk

if TYPE_CHECKING:
    from relaymesh.client.asking import Asking


def asking(url: str, token: str | None) -> Asking:
    """A connection to a node. The HTTP client is imported by who needs it: it takes a third of a start."""
    from relaymesh.client.asking import Asking

    return Asking(url, token)


def agent_path(name: str, *rest: str) -> str:
    return "/".join(["/v1/agents", quote(name, safe="/"), *rest])


def node_of(call: Call) -> Asking | None:
    """A connection to the node; None when no node runs on the directory."""
    if call.url is not None:
        return asking(call.url, call.token)
    path = call.existing()
    found = running_node(path) if is_locked(RealDisk(path)) else None
    return None if found is None else asking(found.url, found.token)
