"""How the server refuses: RFC 9457 `application/problem+json`, from an error of the tree. The table of
`codes` has the status of each error. No request of a client can cause a status of 500 or above: these
describe the node's own state.
"""

from __future__ import annotations

import math

import msgspec

from relaymesh.errors import MeshError, RateLimited, SenderError, Unauthorized
from relaymesh.server.codes import BY_NAME
from relaymesh.wire.api import ProblemBody

PROBLEM_TYPE = "urn:relaymesh:problem:"
MEDIA_TYPE = b"application/problem+json"

TITLES: dict[int, str] = {
    400: "The request is wrong",
    401: "No valid credential",
    403: "The credential does not allow this",
    404: "There is no such thing",
    405: "Not with this method",
    408: "It did not come in time",
    409: "It contradicts what is there",
    413: "It is too large",
    415: "The content type is wrong",
    421: "This server has another name",
    429: "Too much at once",
    431: "The headers are too large",
    500: "The node made a mistake",
    503: "The node cannot do this now",
    507: "The disk is too full",
}

_encode = msgspec.json.Encoder().encode


class MethodNotAllowed(SenderError):
    """The path exists, but not for this method."""

    code = "METHOD_NOT_ALLOWED"
    default_hint = "the header Allow lists the methods of this path"

    def __init__(self, message: str, *, hint: str | None = None, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.allowed = allowed


class UnsupportedMediaType(SenderError):
    """The body is not declared as JSON."""

    code = "WRONG_CONTENT_TYPE"
    default_hint = "send JSON and say so: Content-Type: application/json"


def status_of(error: MeshError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, Unauthorized) and error.authenticated:
        return 403
    row = BY_NAME.get(error.code)
    return row.status if row is not None and row.status else 500


def problem_of(error: MeshError, instance: str) -> ProblemBody:
    status = status_of(error)
    return ProblemBody(
        type=PROBLEM_TYPE + error.code.lower().replace("_", "-"),
        title=TITLES[status],
        status=status,
        detail=error.message,
        code=error.code,
        hint=error.hint,
        retryable=error.retryable,
        instance=instance,
        retry_after_ms=math.ceil(error.retry_after * 1000)
        if isinstance(error, RateLimited)
        else msgspec.UNSET,
    )


def headers_of(error: MeshError) -> list[tuple[bytes, bytes]]:
    """Other headers of the answer: when to retry, the allowed methods, how to log in."""
    if isinstance(error, RateLimited):
        return [(b"retry-after", str(max(1, math.ceil(error.retry_after))).encode())]
    if isinstance(error, MethodNotAllowed):
        return [(b"allow", ", ".join(error.allowed).encode())]
    if isinstance(error, Unauthorized) and not error.authenticated:
        return [(b"www-authenticate", b'Bearer realm="relaymesh"')]
    return [(b"retry-after", b"1")] if error.retryable else []


def problem_answer(error: MeshError, instance: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body of the answer."""
    body = _encode(problem_of(error, instance))
    headers = [
        (b"content-type", MEDIA_TYPE),
        (b"content-length", str(len(body)).encode()),
        *headers_of(error),
    ]
    return status_of(error), headers, body


class Broken(MeshError):
    """A defect of the node: the details are in the log, and never in the answer."""

    code = "INTERNAL"
    default_hint = "see the node's log; the same request may well work again"
