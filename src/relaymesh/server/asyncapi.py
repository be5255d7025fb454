"""AsyncAPI 3 of the WebSocket, made from the types of its frames.

It describes the JSON protocol. The binary protocol has the same operations, with messages and deliveries in
the journal's encoding: it is only for the client of this package. `x-calls` has the names of calls, the scope
that each needs and its arguments.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from relaymesh.server.schemas import opened
from relaymesh.server.version import VERSION
from relaymesh.server.ws import text
from relaymesh.server.ws.calls import CALLS
from relaymesh.wire import frames
from relaymesh.wire.message import Message

REF = "#/components/schemas/{name}"


NODE_FRAMES: tuple[type[msgspec.Struct], ...] = (
    frames.Welcome,
    text.Receipts,
    text.Deliveries,
    text.Settled,
    frames.Result,
    frames.Problem,
    frames.Pong,
    frames.Beat,
    frames.GoingAway,
)


def asyncapi() -> dict[str, Any]:
    """The whole document: one channel, what a client may send on it, and what it gets."""
    client, node = get_args(text.ClientFrame), NODE_FRAMES
    kinds = [_shown(kind) for kind in (*client, *node)]
    calls = [_shown(text.ARGUMENTS.get(row.arguments, row.arguments)) for row in CALLS.values()]
    named, schemas = msgspec.json.schema_components([*kinds, *calls], ref_template=REF)
    opened(schemas)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "RelayMesh",
            "version": VERSION,
            "description": "One frame is one operation: `op` says which, `ref` joins question and answer.",
        },
        "defaultContentType": "application/json",
        "channels": {
            "socket": {
                "address": frames.PATH,
                "description": (
                    f"Subprotocols `{frames.SUBPROTOCOL_JSON}` (text frames) and"
                    f" `{frames.SUBPROTOCOL_MSGPACK}` (binary frames). A bearer token opens it:"
                    " in the header Authorization, or as `token` of `hello`."
                ),
                "messages": {
                    name_of(kind): {"$ref": f"#/components/messages/{name_of(kind)}"}
                    for kind in (*client, *node)
                },
            }
        },
        "operations": {
            "fromClient": _operation("receive", "What a client sends.", client),
            "fromNode": _operation("send", "What the node sends.", node),
        },
        "components": {
            "messages": {
                name_of(kind): _message(kind, schema)
                for kind, schema in zip((*client, *node), named, strict=False)
            },
            "schemas": schemas,
        },
        "x-calls": {
            name: {"scope": row.scope, "arguments": schema}
            for (name, row), schema in zip(CALLS.items(), named[len(kinds) :], strict=True)
        },
    }


def _shown(kind: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The frame with anything, or a message, where it holds raw JSON: a schema cannot show that."""
    fields = msgspec.structs.fields(kind)
    if all(each.type not in (msgspec.Raw, text.Messages) for each in fields):
        return kind
    config = kind.__struct_config__
    shown: list[Any] = [_field(each) for each in fields]
    copy = msgspec.defstruct(
        kind.__name__,
        shown,
        kw_only=True,
        tag_field=config.tag_field,
        tag=config.tag,
        rename="camel",
        forbid_unknown_fields=config.forbid_unknown_fields,
    )
    copy.__doc__ = kind.__doc__
    return copy


def _field(field: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if field.type is msgspec.Raw:
        return (field.name, Any) if field.required else (field.name, Any, None)
    kind = list[Message] if field.type == text.Messages else field.type
    return (field.name, kind) if field.required else (field.name, kind, field.default)


def name_of(kind: type) -> str:
    """The frame's `op`."""
    tag = kind.__struct_config__.tag  # type: ignore[attr-defined]
    assert isinstance(tag, str), "frames are tagged with words"
    return tag


def _message(kind: type[msgspec.Struct], payload: dict[str, Any]) -> dict[str, Any]:
    summary = _in_wire_names(" ".join((kind.__doc__ or "").split()), kind)
    return {"name": name_of(kind), "payload": payload, **({"summary": summary} if summary else {})}


def _in_wire_names(words: str, kind: type[msgspec.Struct]) -> str:
    """The description of a frame, with the field names of the wire: `waitMs`, not `wait_ms`."""
    for each in msgspec.structs.fields(kind):
        words = words.replace(f"`{each.name}`", f"`{each.encode_name}`")
    return words


def _operation(action: str, summary: str, kinds: tuple[type, ...]) -> dict[str, Any]:
    return {
        "action": action,
        "summary": summary,
        "channel": {"$ref": "#/channels/socket"},
        "messages": [{"$ref": f"#/channels/socket/messages/{name_of(kind)}"} for kind in kinds],
    }
