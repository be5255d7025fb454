"""`GET /v1/journal`: what happened, as the journal has it. For clients that follow a node."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from relaymesh.wire.api.base import Answer

FRAMES_BYTES_MAX = 1_048_576
"""An answer ends with the frame that reaches this size."""


class FramesQuery(msgspec.Struct, frozen=True):
    """Which frames: those with events from `from_sequence` on, or the newest `last` events."""

    from_sequence: Annotated[int, Meta(ge=0)] = 0
    last: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    wait_ms: Annotated[int, Meta(ge=0, le=30_000)] = 0


class FrameBody(Answer, frozen=True):
    """The records of one commit."""

    first_sequence: Annotated[int, Meta(description="The sequence of its first event.")]
    events: Annotated[int, Meta(description="How many events it holds.")]
    written_at_ns: int
    payload: Annotated[
        bytes, Meta(description="The records, in base64: docs/formats/records.md says how to read them.")
    ]


class FramesAnswer(Answer, frozen=True):
    """Synced frames, whole and in order; none when nothing happened within `waitMs`."""

    frames: list[FrameBody]
    next_sequence: Annotated[int, Meta(description="Ask from here next.")]
