"""What the content of a message is, where the protocol says anything about it.

The mesh carries content and never looks inside, with two exceptions: `ack` and `nack`, which it writes
itself. The shape of a task is a convention between agents, kept here so that they can agree on one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from relaymesh.wire.message import Text


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An object that may have more fields than are listed."""


class ErrorBody(Body, frozen=True):
    """Why something was refused or given up."""

    code: Annotated[str, Meta(description="A code of the protocol, or of the receiver's own.")]
    message: Annotated[str, Meta(description="For people.")] = ""


class AckContent(Body, frozen=True):
    """Content of `ack`: the receiver has done what the message asked."""

    original_message_id: str
    success: Literal[True]
    timestamp: Annotated[str, Meta(description="When it was settled, ISO 8601.")]


class NackContent(Body, frozen=True):
    """Content of `nack`: the message was finally refused, or is a dead letter."""

    original_message_id: str
    success: Literal[False]
    error: ErrorBody
    timestamp: Annotated[str, Meta(description="When it was settled, ISO 8601.")] | UnsetType = UNSET


TaskStatus = Literal[
    "PENDING", "RUNNING", "SUCCESS", "FAILED", "RETRYING", "TIMEOUT", "ABANDONED", "DEAD_LETTER"
]


class Task(Body, frozen=True):
    """Content of `task_assign`, `task_update`, `task_complete` and `task_failed`, by convention."""

    task_id: Annotated[
        Text, Meta(description="The same in `metadata.taskId`, which keeps its messages in order.")
    ]
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    status: TaskStatus | UnsetType = UNSET
    progress: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    input: Annotated[Any, Meta(description="The input of the task.")] = UNSET
    result: Annotated[Any, Meta(description="What came of it: `task_complete`.")] = UNSET
    error: Annotated[ErrorBody, Meta(description="Why it was given up: `task_failed`.")] | UnsetType = UNSET
