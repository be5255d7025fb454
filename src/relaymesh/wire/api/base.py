"""What all bodies share, and the kinds of fields that occur in several of them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class Request(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """A body that a client sends. Unknown fields are refused."""


class Answer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body that the node sends. Clients must ignore fields they do not know."""


Token = Annotated[
    str,
    Meta(
        description="Lease token of a delivery: partition.epoch.counter.",
        pattern=r"^[0-9]{1,10}\.[0-9]{1,10}\.[0-9]{1,13}$",
        examples=["0.1.7"],
    ),
]
Time = Annotated[str, Meta(description="ISO 8601 in UTC with milliseconds, mesh time.")]
Address = Annotated[str, Meta(description="A full address, `namespace/name`.", examples=["default/coder"])]
Name = Annotated[
    str,
    Meta(
        description="A name in the credential's namespace, or a full address.", min_length=1, max_length=257
    ),
]
Message = Annotated[
    msgspec.Raw,
    Meta(
        description="A message of the Mailbox protocol (envelope.schema.json).",
        extra_json_schema={"type": "object"},
    ),
]
CorrelationId = Annotated[str, Meta(description="The id that an answer names.", min_length=1, max_length=512)]
Content = Annotated[
    msgspec.Raw, Meta(description="Any JSON value, kept byte for byte.", extra_json_schema={})
]
Fields = Annotated[dict[str, Any], Meta(description="Fields of the sender's own, kept as they are.")]
