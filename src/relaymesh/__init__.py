"""RelayMesh: the durable post office and runtime for AI agents.

from relaymesh import Mesh

with Mesh("data") as mesh:
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    planner.send("coder", {"do": "bump version"}, task="release")
    with coder.receive(timeout=5) as delivery:
        print(delivery.content)
"""

import importlib
from typing import TYPE_CHECKING, Any

from relaymesh.errors import (
    Closed,
    Conflict,
    DeadLettersFull,
    DirectoryInUse,
    DiskFloor,
    Empty,
    InvalidEnvelope,
    InvalidPlan,
    InvalidSettings,
    InvalidValue,
    JournalDamaged,
    JournalPoisoned,
    LeaseLost,
    MailboxFull,
    MeshError,
    NoAnswer,
    NotFound,
    OverBudget,
    PayloadTooLarge,
    RateLimited,
    StoreLagging,
    TaskFailed,
    Unauthorized,
    UnknownRecipient,
    Unreachable,
)

if TYPE_CHECKING:
    from relaymesh.client.settings import RemoteSettings
    from relaymesh.kernel.contract import Rule
    from relaymesh.kernel.envelope import Priority
    from relaymesh.node.settings import MeshSettings
    from relaymesh.plans.builder import Workflow
    from relaymesh.sdk.agent import Agent, Subscription
    from relaymesh.sdk.async_agent import AsyncAgent, AsyncSubscription
    from relaymesh.sdk.async_delivery import AsyncDelivery
    from relaymesh.sdk.async_mesh import AsyncMesh
    from relaymesh.sdk.async_task import AsyncTask
    from relaymesh.sdk.delivery import Delivery
    from relaymesh.sdk.endings import Drop, Failed, Reject, Retry
    from relaymesh.sdk.letters import DeadLetter
    from relaymesh.sdk.mesh import Mesh
    from relaymesh.sdk.receipt import Receipt
    from relaymesh.sdk.results import Continue, Result
    from relaymesh.sdk.task import Task

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AsyncAgent",
    "AsyncDelivery",
    "AsyncMesh",
    "AsyncSubscription",
    "AsyncTask",
    "Closed",
    "Conflict",
    "Continue",
    "DeadLetter",
    "DeadLettersFull",
    "Delivery",
    "DirectoryInUse",
    "DiskFloor",
    "Drop",
    "Empty",
    "Failed",
    "InvalidEnvelope",
    "InvalidPlan",
    "InvalidSettings",
    "InvalidValue",
    "JournalDamaged",
    "JournalPoisoned",
    "LeaseLost",
    "MailboxFull",
    "Mesh",
    "MeshError",
    "MeshSettings",
    "NoAnswer",
    "NotFound",
    "OverBudget",
    "PayloadTooLarge",
    "Priority",
    "RateLimited",
    "Receipt",
    "Reject",
    "RemoteSettings",
    "Result",
    "Retry",
    "Rule",
    "StoreLagging",
    "Subscription",
    "Task",
    "TaskFailed",
    "Unauthorized",
    "UnknownRecipient",
    "Unreachable",
    "Workflow",
]

# Loaded when first asked for: a command, or a worker of Spark, that opens no mesh starts in half the time.
_HOMES = {
    "Agent": "relaymesh.sdk.agent",
    "AsyncAgent": "relaymesh.sdk.async_agent",
    "AsyncDelivery": "relaymesh.sdk.async_delivery",
    "AsyncMesh": "relaymesh.sdk.async_mesh",
    "AsyncSubscription": "relaymesh.sdk.async_agent",
    "AsyncTask": "relaymesh.sdk.async_task",
    "Continue": "relaymesh.sdk.results",
    "DeadLetter": "relaymesh.sdk.letters",
    "Delivery": "relaymesh.sdk.delivery",
    "Drop": "relaymesh.sdk.endings",
    "Failed": "relaymesh.sdk.endings",
    "Mesh": "relaymesh.sdk.mesh",
    "MeshSettings": "relaymesh.node.settings",
    "Priority": "relaymesh.kernel.envelope",
    "Receipt": "relaymesh.sdk.receipt",
    "Reject": "relaymesh.sdk.endings",
    "RemoteSettings": "relaymesh.client.settings",
    "Result": "relaymesh.sdk.results",
    "Retry": "relaymesh.sdk.endings",
    "Rule": "relaymesh.kernel.contract",
    "Subscription": "relaymesh.sdk.agent",
    "Task": "relaymesh.sdk.task",
    "Workflow": "relaymesh.plans.builder",
}

if not TYPE_CHECKING:  # a type checker takes a name that is not above for a mistake

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'relaymesh' has no attribute {name!r}", name=name)
        value = globals()[name] = getattr(importlib.import_module(home), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
