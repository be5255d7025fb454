"""The refusals of the guard: one table, answered as RFC 9457 problem+json, or by closing a WebSocket."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from relaymesh.server.security.chain import redacted
from relaymesh.wire.api import ProblemBody

PROBLEM_JSON = b"application/problem+json"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A condition, its code, and the text of the answer, which never repeats what the client sent."""

    code: str
    status: int
    title: str
    hint: str
    retryable: bool = False


class Refused(Exception):
    """Raised inside the guard alone; the guard answers it. `retry_after`: seconds, where waiting helps."""

    def __init__(
        self,
        refusal: Refusal,
        detail: str = "",
        headers: Mapping[str, str] | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(refusal.code)
        self.refusal = refusal
        self.detail = detail
        self.headers = dict(headers or {})
        self.retry_after_ms: int | UnsetType = UNSET
        if retry_after is not None:
            self.retry_after_ms = math.ceil(retry_after * 1000)
            self.headers["retry-after"] = str(max(1, math.ceil(retry_after)))


UNAUTHORIZED = Refusal(
    "UNAUTHORIZED", 401, "no valid credential", "send Authorization: Bearer rm_…; relaymesh token create"
)
HOST_REFUSED = Refusal(
    "HOST_REFUSED", 421, "this server has another name", "use its address, or configure --allow-host"
)
ORIGIN_REFUSED = Refusal(
    "ORIGIN_REFUSED", 403, "requests from that web page are refused", "configure --allow-host if it is yours"
)
MALFORMED = Refusal(
    "MALFORMED_REQUEST",
    400,
    "the request is malformed",
    "correct what `detail` names; /openapi.json lists every path and its parameters",
)
TOKEN_IN_URL = Refusal(
    "TOKEN_IN_URL",
    400,
    "a credential must not stand in a URL",
    "send it in Authorization, and revoke this one",
)
HEADERS_TOO_LARGE = Refusal(
    "HEADERS_TOO_LARGE", 431, "the headers are too large", "send fewer headers, and no cookies"
)
BODY_TOO_LARGE = Refusal(
    "PAYLOAD_TOO_LARGE", 413, "the body is too large", "send a reference, or fewer messages in one batch"
)
BODY_TOO_SLOW = Refusal(
    "REQUEST_TIMEOUT", 408, "the body did not come in time", "send it again, on a better line", retryable=True
)
BODIES_TOO_MANY = Refusal(
    "TOO_MANY_BODIES", 503, "too much is being sent at once", "try again in a moment", retryable=True
)
METHOD_REFUSED = Refusal("METHOD_NOT_ALLOWED", 405, "writes are POST", "GET-compat is off: use POST")
COOKIE_REFUSED = Refusal(
    "COOKIE_REFUSED", 403, "a GET that writes must not carry a cookie", "use POST, or leave the cookie out"
)
RATE_LIMITED = Refusal(
    "RATE_LIMITED", 429, "too many writes", "slow down, or send in batches", retryable=True
)
TOO_MUCH_UNDER_WAY = Refusal(
    "RATE_LIMITED",
    429,
    "too much of this credential is under way",
    "wait for the answers before you send more",
    retryable=True,
)
FORBIDDEN = Refusal(
    "UNAUTHORIZED", 403, "this credential may not write", "use a token with a scope that allows it"
)
TOO_MANY_CONNECTIONS = Refusal(
    "TOO_MANY_CONNECTIONS", 503, "no connection is free", "close idle ones, or try again", retryable=True
)
INTERNAL = Refusal("INTERNAL", 500, "this should not have happened", "see the server's log", retryable=True)


def problem_body(
    refusal: Refusal, detail: str = "", instance: str = "/", retry_after_ms: int | UnsetType = UNSET
) -> bytes:
    return msgspec.json.encode(
        ProblemBody(
            type=f"urn:relaymesh:problem:{refusal.code.lower().replace('_', '-')}",
            title=refusal.title,
            status=refusal.status,
            detail=detail or refusal.title,
            code=refusal.code,
            hint=refusal.hint,
            retryable=refusal.retryable,
            instance=redacted(instance),
            retry_after_ms=retry_after_ms,
        )
    )
