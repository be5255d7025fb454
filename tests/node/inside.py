"""Looking inside a mesh: tests may, programs must not."""

from __future__ import annotations

from relaymesh import AsyncMesh, Mesh
from relaymesh.node.async_local import AsyncLocalSession
from relaymesh.node.local import LocalSession
from relaymesh.node.node import Node


def node_of(mesh: Mesh | AsyncMesh) -> Node:
    """The node of an embedded mesh."""
    session = mesh._session
    assert isinstance(session, (LocalSession, AsyncLocalSession))
    return session.node
