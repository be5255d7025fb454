"""The shapes of Mailbox protocol 1.1 in JSON. Decoding checks types and lengths; schemas come from here."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from relaymesh.kernel.envelope import PRIORITY_NAMES
from relaymesh.wire.envelope import ID_LENGTH_MAX, TAGS_MAX
from relaymesh.wire.types import CUSTOM_TYPE, MESSAGE_TYPES, TYPE_LENGTH_MAX

PROTOCOL_VERSION = "1.1.0"
TEXT_LENGTH_MAX = 512
RETRIES_MAX = 1_000_000

TYPE_PATTERN = f"^({'|'.join(name.replace('.', '[.]') for name in MESSAGE_TYPES)}|{CUSTOM_TYPE})$"

Text = Annotated[str, Meta(min_length=1, max_length=TEXT_LENGTH_MAX)]
Id = Annotated[str, Meta(min_length=1, max_length=ID_LENGTH_MAX)]
Name = Annotated[
    str, Meta(min_length=1, max_length=257, description="An agent: `name`, or `namespace/name`.")
]
Time = Annotated[datetime, Meta(tz=True)]
Seconds = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0, le=RETRIES_MAX)]
Tags = Annotated[list[Text], Meta(max_length=TAGS_MAX)]


class Metadata(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False
):
    """How a message is to be handled. Fields that are not listed here survive as they are."""

    correlation_id: Annotated[
        Text | None, Meta(description="The message or question this one belongs to.")
    ] = None
    ttl: Annotated[
        Seconds | None, Meta(description="Seconds it may wait, from when it is due; 0 is for ever.")
    ] = None
    requires_ack: Annotated[
        bool | None, Meta(description="Tell the sender how it ended, with `ack` or `nack`.")
    ] = None
    retry_count: Annotated[
        Any, Meta(description="Set by the mesh: how often it was tried again. Ignored from a sender.")
    ] = None
    max_retries: Annotated[Count | None, Meta(description="Retries after the first attempt.")] = None
    tags: Annotated[Tags | None, Meta(description="For people and filters.")] = None
    reply_to: Annotated[Name | None, Meta(description="Where answers go, if not to the sender.")] = None
    task_id: Annotated[
        Text | None, Meta(description="Messages of one task are handled one after the other.")
    ] = None
    ordering_key: Annotated[Text | None, Meta(description="The same, for any other order.")] = None
    delay_ms: Annotated[
        Any,
        Meta(
            description="Not visible before so many ms have passed. Negative or not a number: 0, and noted."
        ),
    ] = None
    traceparent: Annotated[Text | None, Meta(description="W3C trace context.")] = None
    content_encoding: Annotated[
        Literal["json", "base64"] | None, Meta(description="base64: content is a string that holds bytes.")
    ] = None
    origin_id: Annotated[
        Any, Meta(description="Set by the mesh: the message this one was edited from. Ignored from a sender.")
    ] = None


class Message(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"sender": "from", "task_id": "taskId", "delay_ms": "delayMs"},
    forbid_unknown_fields=True,
    gc=False,
):
    """A message as an agent writes it. Fields that are not listed here survive as they are."""

    content: Annotated[Raw, Meta(description="Any JSON value, kept byte for byte.")]
    id: Annotated[Id | None, Meta(description="Printable. Makes sending it again harmless.")] = None
    sender: Annotated[
        Name | None, Meta(description="The sender. Left out: the agent of the credential, or of `hello`.")
    ] = None
    to: Annotated[Name | None, Meta(description="Left out when publishing to a topic.")] = None
    type: Annotated[
        str | None,
        Meta(
            description="One of the protocol's types, or a name of your own with a dot in it.",
            extra_json_schema={"pattern": TYPE_PATTERN, "maxLength": TYPE_LENGTH_MAX},
        ),
    ] = None
    timestamp: Annotated[Time | None, Meta(description="When it was written, with its time zone.")] = None
    priority: Annotated[
        float | str | None,
        Meta(
            description="1 CRITICAL, 2 HIGH, 3 NORMAL, 4 LOW, 5 BACKGROUND, or a name. Left out: by type.",
            extra_json_schema={"enum": [None, 1, 2, 3, 4, 5, *PRIORITY_NAMES]},
        ),
    ] = None
    metadata: Metadata | None = None
    task_id: Annotated[Text | None, Meta(description="The same as `metadata.taskId`.")] = None
    delay_ms: Annotated[Any, Meta(description="The same as `metadata.delayMs`.")] = None
