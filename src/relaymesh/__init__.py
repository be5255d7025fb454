"""RelayMesh: the durable post office and runtime for AI agents.

from relaymesh import Mesh

with Mesh("data") as mesh:
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    planner.send("coder", {"do": "bump version"}, id="bump-1.4", task="release")
    with coder.receive(timeout=5) as delivery:
        print(delivery.content)
"""

from relaymesh.client.settings import RemoteSettings
from relaymesh.errors import (
    Closed,
    Conflict,
    DirectoryInUse,
    DiskFloor,
    Empty,
    InvalidEnvelope,
    InvalidSettings,
    JournalDamaged,
    JournalPoisoned,
    LeaseLost,
    MailboxFull,
    MeshError,
    NoAnswer,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    StoreLagging,
    Unauthorized,
    UnknownRecipient,
    Unreachable,
)
from relaymesh.kernel.contract import Rule
from relaymesh.kernel.envelope import Priority
from relaymesh.node.settings import MeshSettings
from relaymesh.sdk.async_mesh import AsyncMesh
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.outcome import Drop, Reject, Retry

__version__ = "0.1.0"

__all__ = [
    "AsyncMesh",
    "Closed",
    "Conflict",
    "DirectoryInUse",
    "DiskFloor",
    "Drop",
    "Empty",
    "InvalidEnvelope",
    "InvalidSettings",
    "JournalDamaged",
    "JournalPoisoned",
    "LeaseLost",
    "MailboxFull",
    "Mesh",
    "MeshError",
    "MeshSettings",
    "NoAnswer",
    "NotFound",
    "PayloadTooLarge",
    "Priority",
    "RateLimited",
    "Reject",
    "RemoteSettings",
    "Retry",
    "Rule",
    "StoreLagging",
    "Unauthorized",
    "UnknownRecipient",
    "Unreachable",
]
