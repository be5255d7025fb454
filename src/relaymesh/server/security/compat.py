"""Writes by GET, for programs that can do nothing else: off by default, and deprecated.

    GET /v1/compat/send?to=coder&content=hello&type=message     as POST /v1/messages
    GET /v1/compat/send?to=coder&content=hi&delayMs=5000&taskId=t-1
    GET /v1/compat/publish?topic=order.created&content=hello    as POST /v1/topics/order.created/messages

The credential is sent in Authorization, as for every request; a request with a cookie is refused,
because a browser would send it along for any page. Each answer carries a Deprecation header, and
each write is audited as `web.write.get_compat`.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

from relaymesh.server.security.arrival import Arrival, Scope
from relaymesh.server.security.refusals import COOKIE_REFUSED, MALFORMED, METHOD_REFUSED, Refused

PREFIX = "/v1/compat/"
DEPRECATION = (b"deprecation", b"@1767225600")
"""RFC 9745: a date as a structured field; deprecated since 2026-01-01, when it was first there."""
EVENT = "web.write.get_compat"

_FIELDS = frozenset({"to", "from", "type", "content", "id", "priority", "taskId", "delayMs", "topic"})

_WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)


def translated(scope: Scope, arrival: Arrival, *, enabled: bool) -> tuple[Scope, bytes]:
    """The POST that a compat GET stands for, and its body."""
    action = arrival.path.removeprefix(PREFIX)
    if not enabled or arrival.method != "GET" or action not in ("send", "publish"):
        raise Refused(METHOD_REFUSED, headers={"allow": "POST"})
    if arrival.cookie is not None:
        raise Refused(COOKIE_REFUSED)
    fields = _fields(scope)
    path = "/v1/messages"
    if action == "publish":
        topic = fields.pop("topic", None)
        if not isinstance(topic, str) or not topic:
            raise Refused(MALFORMED, "topic is missing in the query")
        path = f"/v1/topics/{topic}/messages"
    body = msgspec.json.encode(fields)
    headers = [pair for pair in scope["headers"] if pair[0] not in (b"content-type", b"content-length")]
    headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    changed: dict[str, Any] = {
        "method": "POST",
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": b"",
        "headers": headers,
    }
    return {**scope, **changed}, body


def _fields(scope: Scope) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            scope["query_string"].decode("ascii"), True, True, errors="strict", max_num_fields=32
        )
    except ValueError:
        raise Refused(MALFORMED, "the query cannot be read") from None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields or name not in _FIELDS:
            raise Refused(MALFORMED, f"{name[:40]!r} in the query is unknown, or given twice")
        fields[name] = _number(value) if name == "delayMs" else value
    return fields


def _number(text: str) -> int | str:
    """A whole number as such; anything else as it is: it counts as no delay, and the receipt says so."""
    return int(text) if _WHOLE.fullmatch(text) else text
