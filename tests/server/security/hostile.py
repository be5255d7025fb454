"""Hostile requests, each by name: what is sent, and which refusals are right.

A refusal is a status of the list; 0 stands for being hung up on without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.server.security.serving import Serving, request, upgrade

BODY_BYTES_MAX = 16_777_216
MESSAGE = '{"to": "coder", "from": "planner", "type": "message", "content": %s}'


@dataclass(frozen=True)
class Hostile:
    name: str
    data: Callable[[Serving], bytes]
    refusals: tuple[int, ...]


def get(name: str, status: int | tuple[int, ...], *words: str, **how: object) -> Hostile:
    refusals = status if isinstance(status, tuple) else (status,)
    return Hostile(name, lambda server: request(server, *words, **how), refusals)  # type: ignore[arg-type]


def post(
    name: str, status: int | tuple[int, ...], body: bytes | str, *headers: str, **how: object
) -> Hostile:
    return get(name, status, "POST", str(how.pop("path", "/v1/messages")), *headers, body=body, **how)


def raw(name: str, status: int | tuple[int, ...], *lines: str, body: bytes = b"") -> Hostile:
    """A request given line by line; {host}, {bearer} and {port} are filled in."""
    refusals = status if isinstance(status, tuple) else (status,)

    def data(server: Serving) -> bytes:
        text = "\r\n".join(lines).format(
            host=f"127.0.0.1:{server.port}", bearer=server.bearer(), port=server.port
        )
        return text.encode("latin-1") + b"\r\n\r\n" + body

    return Hostile(name, data, refusals)


def ws(name: str, status: int | tuple[int, ...], *headers: str, **how: object) -> Hostile:
    refusals = status if isinstance(status, tuple) else (status,)
    return Hostile(name, lambda server: upgrade(server, *headers, **how), refusals)  # type: ignore[arg-type]


def chunked(*chunks: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def in_a_trailer(server: Serving) -> bytes:
    """A proxy in front that takes credentials out of the head may let trailers pass."""
    head = request(server, "POST", "/v1/messages", "Transfer-Encoding: chunked", token=None)
    return head + b"2\r\n{}\r\n0\r\n" + server.bearer().encode() + b"\r\n\r\n"


def without_end(server: Serving) -> bytes:
    return f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Big: {'a' * 400_000}".encode()


REBINDING = [
    get("a name that was pointed at this machine", 421, host="evil.example"),
    get("the same with the right port", 421, host="evil.example:7717"),
    get("a name that begins with ours", 421, host="localhost.evil.example"),
    get("an address inside a name", 421, host="127.0.0.1.evil.example"),
    get("our address on another port", 421, host="127.0.0.1:1"),
    get("our address without its port", 421, host="127.0.0.1"),
    get("every address", 421, host="0.0.0.0:7717"),
    get("a user in front of a name", 421, host="localhost@evil.example"),
    get("two names in one", 421, host="127.0.0.1, evil.example"),
    get("no host", (400, 421), host=None),
    get("two hosts", 400, "GET", "/v1/stats", "Host: evil.example"),
    get(
        "a forwarded host is not believed", 421, "GET", "/v1/stats", "X-Forwarded-Host: localhost", host="a.b"
    ),
    get("even the health check has a name", 421, "GET", "/healthz", host="evil.example", token=None),
    get("an absolute address elsewhere", 400, "GET", "http://evil.example/v1/stats"),
    ws("a websocket under another name", 421, host="evil.example"),
]

CROSS_SITE = [
    get("a page of another site", 403, "GET", "/v1/stats", "Origin: https://evil.example"),
    get("a page in a sandbox", 403, "GET", "/v1/stats", "Origin: null"),
    get("an origin that ends in ours", 403, "GET", "/v1/stats", "Origin: http://evil-127.0.0.1"),
    get("another server on this machine", 403, "GET", "/v1/stats", "Origin: http://localhost:1"),
    get("an extension", 403, "GET", "/v1/stats", "Origin: moz-extension://7b1f"),
    get("an origin with a path", 403, "GET", "/v1/stats", "Origin: http://localhost:7717/x"),
    get("two origins", 400, "GET", "/v1/stats", "Origin: http://localhost", "Origin: https://evil.example"),
    get("a preflight", (401, 403), "OPTIONS", "/v1/messages", "Origin: https://evil.example", token=None),
    post("a form", 415, "to=coder", "Content-Type: application/x-www-form-urlencoded"),
    post("a form with files", 415, "--x", "Content-Type: multipart/form-data; boundary=x"),
    post("JSON that a form can send", 415, MESSAGE % '"x"', "Content-Type: text/plain"),
    post("a form with a cookie alone", 401, "to=coder", "Cookie: session=1", token=None),
    ws("a websocket of another site", 403, "Origin: https://evil.example"),
    ws("a websocket of a sandbox", 403, "Origin: null"),
]

CREDENTIALS = [
    get("none", 401, token=None),
    get("a password", 401, "GET", "/v1/stats", "Authorization: Basic cm9vdDpyb290", token=None),
    get("an empty one", 401, "GET", "/v1/stats", "Authorization: Bearer ", token=None),
    get(
        "a made up one", 401, "GET", "/v1/stats", f"Authorization: Bearer rm_abcdefgh_{'A' * 43}", token=None
    ),
    get(
        "the local one, guessed",
        401,
        "GET",
        "/v1/node",
        f"Authorization: Bearer rm_local_{'A' * 43}",
        token=None,
    ),
    get("a huge one", 401, "GET", "/v1/stats", f"Authorization: Bearer {'A' * 20_000}", token=None),
    get("one that was revoked", 401, token="revoked"),
    get("one that has expired", 401, token="expired"),
    get("two at once", 400, "GET", "/v1/stats", "Authorization: Bearer x"),
    get("in the query", 400, "GET", "/v1/stats?access_token=x", token=None),
    get("in the path", 400, "GET", f"/v1/rm_abcdefgh_{'A' * 43}"),
    get("in the query, encoded", 400, "GET", f"/v1/stats?q=%72m_abcdefgh_{'A' * 43}"),
    get("in the path, encoded", 400, "GET", f"/v1/%72%6d_abcdefgh_{'A' * 43}"),
    get("in a cookie", 401, "GET", "/v1/stats", "Cookie: token=x", token=None),
    post("one for reading that writes", 403, MESSAGE % '"x"', token="ro"),
    get("one for an agent that reads the metrics", 403, "GET", "/metrics", token="coder"),
    get("the metrics without one", 401, "GET", "/metrics", token=None),
    Hostile("in a trailer", in_a_trailer, (401,)),
    ws("a websocket without one, elsewhere", 401, path="/v1/messages", token=None),
    ws("a websocket with one in its address", 400, path="/v1/ws?token=x", token=None),
    ws("a websocket with a revoked one", 401, token="revoked"),
]

PATHS = [
    get("up and out", 400, "GET", "/v1/../../etc/passwd"),
    get("up and out, encoded", 400, "GET", "/v1/%2e%2e/%2e%2e/etc/passwd"),
    get("up and out, slashes encoded", 400, "GET", "/v1/mailboxes/..%2f..%2fserver%2ftokens.json"),
    get("up and out, twice encoded", (400, 404), "GET", "/v1/mailboxes/%252e%252e%252fserver"),
    get("up and out, backslashes", 400, "GET", "/v1/mailboxes/..%5c..%5cserver"),
    get("up and out, overlong", 400, "GET", "/v1/mailboxes/%c0%ae%c0%ae/server"),
    get("a NUL", 400, "GET", "/v1/mailboxes/coder%00.json"),
    get("a line end", 400, "GET", "/v1/mailboxes/coder%0d%0aSet-Cookie:x"),
    get("an empty segment", 400, "GET", "//v1//stats"),
    get("a dot", 400, "GET", "/v1/./stats"),
    get("the token file", (400, 404), "GET", "/server/tokens.json"),
    get("a name with a wildcard", (400, 404), "GET", "/v1/mailboxes/*"),
]

SENDERS = [
    post("another agent", 403, '{"to": "planner", "from": "admin", "content": "x"}', token="coder"),
    post("the mesh itself", 403, '{"to": "coder", "from": "mesh", "content": "x"}'),
    post("the system", 403, '{"to": "coder", "from": "default/system", "content": "x"}'),
    post("an agent of another team", 403, '{"to": "coder", "from": "team/coder", "content": "x"}'),
    post("to another team", 403, '{"to": "team/coder", "from": "planner", "content": "x"}'),
    post(
        "from a team to the default one",
        403,
        '{"to": "default/coder", "from": "a", "content": "x"}',
        token="team",
    ),
    get("somebody's mail", 403, "POST", "/v1/mailboxes/planner/receive", token="coder"),
    get(
        "somebody's mail in another team", 403, "POST", "/v1/mailboxes/default%2fcoder/receive", token="team"
    ),
    get("somebody's subscription", 403, "PUT", "/v1/topics/order.*/subscriptions/billing", token="coder"),
    post(
        "purging as an agent",
        403,
        '{"all": true, "reason": "x"}',
        path="/v1/dead-letters/purge",
        token="coder",
    ),
]

SIZES = [
    raw(
        "a length beyond the limit",
        413,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: close",
        f"Content-Length: {BODY_BYTES_MAX + 1}",
    ),
    raw(
        "a length beyond all numbers",
        (400, 413),
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: close",
        f"Content-Length: {'9' * 30}",
    ),
    raw(
        "a length below nothing",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: close",
        "Content-Length: -1",
    ),
    raw(
        "a body beyond the limit",
        (413, 0),
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: close",
        f"Content-Length: {BODY_BYTES_MAX + 1}",
        body=b" " * (BODY_BYTES_MAX + 1),
    ),
    raw(
        "chunks without end",
        (413, 0),
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: close",
        "Content-Type: application/json",
        "Transfer-Encoding: chunked",
        body=(b"10000\r\n" + b" " * 65_536 + b"\r\n") * 257,
    ),
    raw(
        "a chunk of all memory",
        (400, 408, 413),
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: close",
        "Transfer-Encoding: chunked",
        body=b"ffffffffffffffffff\r\nx",
    ),
    post("a content beyond the limit", 413, MESSAGE % ('"' + "a" * 10_485_760 + '"')),
    post("a batch beyond the limit", (400, 413), b"[" + b"{}," * 10_001 + b"{}]"),
]

JSON = [
    post("nothing", 400, " "),
    post("half", 400, '{"to": "coder", "content": '),
    post("no object", 400, "42"),
    post("deep", 400, MESSAGE % ("[" * 65 + "]" * 65)),
    post("very deep", 400, MESSAGE % ("[" * 100_000 + "]" * 100_000)),
    post("deep outside the content", 400, "[" * 100_000),
    post("a key twice in the content", 400, MESSAGE % '{"a": 1, "a": 2}'),
    post("a key twice in the message", 400, '{"to": "coder", "to": "x", "from": "planner", "content": 1}'),
    post("bytes that are no text", 400, b'{"to": "coder", "from": "planner", "content": "\xff\xfe"}'),
    post("half a surrogate", 400, MESSAGE % '"\\ud800"'),
    post("not a number", 400, MESSAGE % "NaN"),
    post("infinity", 400, MESSAGE % "[-Infinity]"),
    post("a number beyond all numbers", 400, MESSAGE % "1e999"),
    post("a mark in front", 400, "\ufeff" + MESSAGE % '"x"'),
    post("a comment", 400, MESSAGE % "1 /* x */"),
    post("an id with a line end", 400, '{"id": "a\\nb", "to": "coder", "from": "planner", "content": 1}'),
    post(
        "a type that nobody knows",
        400,
        '{"type": "format_disk", "to": "coder", "from": "planner", "content": 1}',
    ),
]

HEADS = [
    get("a thousand headers", 431, "GET", "/v1/stats", *(f"X-{i}: y" for i in range(1_000))),
    get("a huge header", 431, "GET", "/v1/stats", f"X-Big: {'a' * 60_000}"),
    get("a huge address", (400, 414, 431), "GET", f"/v1/{'a' * 60_000}"),
    Hostile("a header without end", without_end, (431,)),
    raw("a header with a NUL", 400, "GET /v1/stats HTTP/1.1", "Host: {host}", "X-A: a\0b"),
    raw("a header without a colon", 400, "GET /v1/stats HTTP/1.1", "Host: {host}", "nonsense"),
    raw("a folded header", 400, "GET /v1/stats HTTP/1.1", "Host: {host}", "X-A: b", " c"),
    raw("no HTTP", (400, 0), "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    raw("HTTP of tomorrow", (400, 505, 0), "PRI * HTTP/2.0", "", "SM"),
    raw("HTTP of yesterday", (400, 421, 0), "GET /v1/stats"),
]

SMUGGLING = [
    raw(
        "two lengths",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Content-Length: 0",
        "Content-Length: 44",
        body=b"GET /v1/stats HTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    raw(
        "length and chunks",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Content-Length: 4",
        "Transfer-Encoding: chunked",
        body=b"0\r\n\r\nGET /v1/stats HTTP/1.1\r\n\r\n",
    ),
    raw(
        "chunks and length",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Transfer-Encoding: chunked",
        "Content-Length: 4",
        body=b"0\r\n\r\n",
    ),
    raw(
        "chunks misspelt",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Transfer-Encoding: xchunked",
        body=b"0\r\n\r\n",
    ),
    raw(
        "chunks, then not",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Transfer-Encoding: chunked, identity",
        body=b"0\r\n\r\n",
    ),
    raw(
        "a space before the colon",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Transfer-Encoding : chunked",
        body=b"0\r\n\r\n",
    ),
    raw(
        "a length with a sign",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Content-Length: +4",
        body=b"null",
    ),
    raw(
        "a length in hex",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Content-Length: 0x4",
        body=b"null",
    ),
    raw(
        "a chunk that is longer than it says",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: close",
        "Transfer-Encoding: chunked",
        body=b"2\r\n{}GET / HTTP/1.1\r\n\r\n",
    ),
    raw(
        "a chunk with a sign",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: close",
        "Transfer-Encoding: chunked",
        body=b"+2\r\n{}\r\n0\r\n\r\n",
    ),
    raw(
        "a line that ends too early",
        400,
        "POST /v1/messages HTTP/1.1",
        "Host: {host}\nX: y",
        "{bearer}",
        "Connection: close",
    ),
]

METHODS = [
    get("TRACE", (400, 405), "TRACE", "/v1/stats"),
    raw("CONNECT", (400, 405), "CONNECT evil.example:443 HTTP/1.1", "Host: {host}", "{bearer}"),
    get("PROPFIND", (400, 405), "PROPFIND", "/v1/stats"),
    get("one that was made up", (400, 405), "DESTROY", "/v1/messages"),
    get("GET for a write", 405, "GET", "/v1/settle"),
    get("GET that says it is a POST", 405, "GET", "/v1/settle", "X-HTTP-Method-Override: POST"),
    get("GET-compat, which is off", 405, "GET", "/v1/compat/send?to=coder&from=planner&content=x"),
    get("DELETE for everything", 405, "DELETE", "/v1/messages"),
    get("POST to the health check", 405, "POST", "/healthz"),
]

HANDSHAKES = [
    ws("an old version", (400, 426), version="7"),
    ws("no version", (400, 426), version=""),
    ws("no key", 400, key=" "),
    ws("a short key", 400, key="c2hvcnQ="),
    ws("no protocol we speak", 400, subprotocol="chat"),
    ws("another place", 404, path="/v1/messages"),
    ws("up and out", 400, path="/v1/../ws"),
    raw(
        "another protocol",
        (400, 401, 404, 405, 426),
        "GET /v1/ws HTTP/1.1",
        "Host: {host}",
        "{bearer}",
        "Connection: Upgrade, close",
        "Upgrade: h2c",
    ),
]

ALL: dict[str, list[Hostile]] = {
    "rebinding": REBINDING,
    "cross-site": CROSS_SITE,
    "credentials": CREDENTIALS,
    "paths": PATHS,
    "senders": SENDERS,
    "sizes": SIZES,
    "json": JSON,
    "heads": HEADS,
    "smuggling": SMUGGLING,
    "methods": METHODS,
    "handshakes": HANDSHAKES,
}
