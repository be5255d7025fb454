"""Dead letters: which, and what to do with them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from relaymesh.wire.api.base import Address, Answer, Content, Message, Name, Request, Time
from relaymesh.wire.api.story import FailureBody

LETTERS_MAX = 10_000


class LetterFilter(Request, frozen=True):
    """Dead letters that fit every given word. Also the query of `GET /v1/dead-letters`."""

    receiver: Annotated[str, Meta(description="Mailbox it died in: address or name.")] | None = None
    sender: Annotated[str, Meta(description="Who sent it: address or name.")] | None = None
    reason: (
        Annotated[str, Meta(description="retries_exhausted, not_retryable, ttl_expired, mailbox_full, …")]
        | None
    ) = None
    code: Annotated[str, Meta(description="Error code of the last failure.")] | None = None
    ids: Annotated[list[str], Meta(description="Message ids.", max_length=LETTERS_MAX)] | None = None
    since: Annotated[str, Meta(description="Died at or after this ISO 8601 time.")] | None = None
    until: Annotated[str, Meta(description="Died before this ISO 8601 time.")] | None = None
    status: Annotated[
        Literal["pending", "redriven", "all"], Meta(description="pending: it was not redriven yet.")
    ] = "pending"
    after: Annotated[int, Meta(description="Died after that deadSequence.", ge=0, le=1 << 62)] | None = None
    limit: Annotated[int, Meta(description="At most so many.", ge=1, le=LETTERS_MAX)] = 100


class LetterChoice(Request, frozen=True):
    """One dead letter, by what names it; for a redrive also its new content."""

    dead_sequence: Annotated[int, Meta(description="Names the letter, with its mailbox.", ge=0, le=1 << 62)]
    content: Annotated[Content, Meta(description="Content in place of the old one.")] | UnsetType = UNSET
    content_base64: (
        Annotated[
            str, Meta(description="The same for content that is bytes.", pattern=r"^[A-Za-z0-9+/]*={0,2}$")
        ]
        | UnsetType
    ) = UNSET
    id: (
        Annotated[str, Meta(description="Id of the edited message; made here if absent.", max_length=128)]
        | UnsetType
    ) = UNSET


class RedriveRequest(Request, frozen=True):
    """Send dead letters back to their mailbox, or to agent `to`. Repeating the call changes nothing.

    Name letters, or a filter; naming neither is an error. An edited letter gets a new id and names its
    origin.
    """

    letters: Annotated[list[LetterChoice], Meta(max_length=LETTERS_MAX)] | None = None
    filter: LetterFilter | None = None
    to: Name | None = None
    content: Annotated[Content, Meta(description="The same new content for every letter.")] | UnsetType = (
        UNSET
    )
    dry_run: Annotated[bool, Meta(description="Only say what would be redriven.")] = False
    rate_per_s: Annotated[
        float,
        Meta(
            description="At most so many a second; 0 is no limit. More than a minute's worth is refused.",
            ge=0,
            le=1_000_000,
        ),
    ] = 0


class RedrivenBody(Answer, frozen=True):
    """What became of one dead letter."""

    dead_sequence: int
    message_id: Annotated[str, Meta(description="The id it died under.")]
    receiver: Address
    to: Address
    sequence: Annotated[
        int | None, Meta(description="Its new entry; null in a dry run, or when it was redriven before.")
    ]
    redriven_as: (
        Annotated[str, Meta(description="The new id of an edited message, also when it was redriven before.")]
        | UnsetType
    ) = UNSET


class RedrivenAnswer(Answer, frozen=True):
    """One result for each letter."""

    redriven: list[RedrivenBody]
    dry_run: bool


class PurgeRequest(Request, frozen=True):
    """Remove dead letters for good: letters or a filter; naming neither is an error."""

    letters: Annotated[list[int], Meta(description="Dead sequences.", max_length=LETTERS_MAX)] | None = None
    filter: LetterFilter | None = None


class PurgedAnswer(Answer, frozen=True):
    """How many are gone."""

    purged: int


class DeadLetterBody(Answer, frozen=True):
    """A message that was given up, with everything needed to decide what to do about it."""

    dead_sequence: Annotated[int, Meta(description="Names the letter.")]
    message_id: str
    receiver: Annotated[Address, Meta(description="The mailbox it died in.")]
    sender: Address
    reason: str
    code: Annotated[str, Meta(description="Error code of the last failure.")]
    error: Annotated[str, Meta(description="What the last failure said.")]
    attempts: int
    redrives: int
    sequence: Annotated[int, Meta(description="The event that had accepted the message.")]
    accepted_at: Time
    failed_at: Time
    status: Literal["pending", "redriven"]
    failures: list[FailureBody]
    message: Message
    redriven_as: (
        Annotated[str, Meta(description="Id of the edited message that went back in its place.")] | UnsetType
    ) = UNSET
    topic: (
        Annotated[
            str, Meta(description="Of a subscription's: the topic it was published to, with its namespace.")
        ]
        | UnsetType
    ) = UNSET


class DeadLettersAnswer(Answer, frozen=True):
    """Letters in the order in which they died, mailbox by mailbox."""

    dead_letters: list[DeadLetterBody]
    more: Annotated[bool, Meta(description="There are more than the limit.")]
