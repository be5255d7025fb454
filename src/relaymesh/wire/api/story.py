"""`GET /v1/messages/{id}`: everything the node knows of a message."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from relaymesh.wire.api.base import Address, Answer, Time, Token


class FailureBody(Answer, frozen=True):
    """Why one attempt failed."""

    attempt: int
    at: Time
    code: str
    reason: str = ""
    stack: str = ""


class StoryEntry(Answer, frozen=True):
    """One stay of the message in one mailbox."""

    mailbox: Address
    sequence: Annotated[int, Meta(description="The event that accepted it here.")]
    state: Annotated[
        Literal["delayed", "ready", "leased", "acked", "dropped", "dead", "redriven", "purged"],
        Meta(description="Where it is now."),
    ]
    type: str
    sender: Annotated[Address, Meta(description="Who sent it.")]
    priority: int
    attempts: Annotated[int, Meta(description="Deliveries so far, a running one included.")]
    redrives: Annotated[int, Meta(description="How often it was redriven before this stay.")]
    accepted_at: Time
    due_at: Annotated[Time, Meta(description="When it could or can next be delivered.")]
    updated_at: Time
    topic: Annotated[str, Meta(description="The topic it was published on.")] | UnsetType = UNSET
    task_id: str | UnsetType = UNSET
    holder: Annotated[str, Meta(description="Who holds its lease.")] | UnsetType = UNSET
    lease_token: Token | UnsetType = UNSET
    lease_deadline: Time | UnsetType = UNSET
    dead_sequence: Annotated[int, Meta(description="Names its dead letter.")] | UnsetType = UNSET
    dead_reason: str | UnsetType = UNSET
    redriven_as: (
        Annotated[str, Meta(description="Id of the edited message that went back in its place.")] | UnsetType
    ) = UNSET
    origin_id: (
        Annotated[str, Meta(description="Id of the message it was edited from; while it is not settled.")]
        | UnsetType
    ) = UNSET
    failures: Annotated[list[FailureBody], Meta(description="Failed attempts, oldest first.")] = field(
        default_factory=list
    )


class StoryAnswer(Answer, frozen=True):
    """All stays, in the order in which they began."""

    message_id: str
    entries: list[StoryEntry]
