"""A request as it arrives: the headers the guard looks at, each at most once, and where it came from."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from relaymesh.server.security.proxies import Proxies
from relaymesh.server.security.refusals import MALFORMED, TOKEN_IN_URL, Refused

Scope = MutableMapping[str, Any]

CONNECTION_KEY = "relaymesh.connection"
"""Where a scope names the protocol of its socket. A test that calls the guard by itself has none."""

_SINGLE = {
    b"host": "host",
    b"origin": "origin",
    b"authorization": "authorization",
    b"content-length": "content_length",
    b"expect": "expect",
}
_ANY = {
    b"cookie": "cookie",
    b"user-agent": "user_agent",
    b"referer": "referer",
    b"x-forwarded-for": "x_forwarded_for",
    b"x-forwarded-proto": "x_forwarded_proto",
}
_SECRET_PARAMETER = re.compile(
    rb"(?:^|[&;])(?:(?:access|auth|bearer)?[_-]?token|authorization|api[_-]?key)=", re.IGNORECASE
)
_SECRET_TEXT = re.compile(rb"rm_[a-z0-9]{1,16}_[A-Za-z0-9_-]{20,}")


class Arrival(msgspec.Struct, kw_only=True, frozen=True):
    """The request, its claimed credential, and its origin."""

    method: str
    path: str
    scheme: str
    server_port: int | None
    peer: str | None
    remote_addr: str = ""
    host: str | None = None
    origin: str | None = None
    authorization: str | None = None
    content_length: str | None = None
    expect: str | None = None
    cookie: str | None = None
    user_agent: str = ""
    referer: str = ""
    x_forwarded_for: str | None = None
    x_forwarded_proto: str | None = None


def arrival_of(scope: Scope, proxies: Proxies) -> Arrival:
    """Read the head of a request or a WebSocket's handshake."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        field = _SINGLE.get(name)
        if field is not None and field in found:
            raise Refused(MALFORMED, f"the header {name.decode('latin-1')} is given twice")
        field = field or _ANY.get(name)
        if field is not None:
            before = found.get(field)
            text = value.decode("latin-1")
            found[field] = text if before is None else f"{before}, {text}"
    peer = scope["client"][0] if scope.get("client") else None
    server = scope.get("server")
    return Arrival(
        method=scope.get("method", "GET"),
        path=scope["path"],
        scheme=proxies.scheme(peer, scope["scheme"], found.get("x_forwarded_proto")),
        server_port=server[1] if server else None,
        peer=peer,
        remote_addr=proxies.remote_address(peer, found.get("x_forwarded_for")) or "",
        **found,
    )


def check_url(scope: Scope) -> None:
    """Refuse an ambiguous path, and a credential in the URL, which would end up in a log."""
    path: str = scope["path"]
    query: bytes = scope.get("query_string") or b""
    if b"%" in query:
        query = unquote_to_bytes(query)
    if "rm_" in path and _SECRET_TEXT.search(path.encode()):
        raise Refused(TOKEN_IN_URL)
    if query and (_SECRET_TEXT.search(query) or _SECRET_PARAMETER.search(query)):
        raise Refused(TOKEN_IN_URL)
    if not path.startswith("/") or "\ufffd" in path or "\\" in path or not path.isprintable():
        raise Refused(MALFORMED, "the path holds what no path of this server holds")
    if "//" in path or ".." in path.split("/") or "." in path.split("/"):
        raise Refused(MALFORMED, "the path is not in its plain form")
