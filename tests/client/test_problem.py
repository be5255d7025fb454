"""The answer of a node that refuses, read back as the error it raised."""

from __future__ import annotations

import httpx
import msgspec
import pytest
from msgspec import UNSET, UnsetType

from relaymesh.client.problem import answer_of, problem_error
from relaymesh.errors import MailboxFull, MeshError, RateLimited, Unauthorized, Unreachable
from relaymesh.wire.api import NodeAnswer, ProblemBody


def _document(code: str, status: int, retry_after_ms: int | UnsetType = UNSET) -> bytes:
    body = ProblemBody(
        type="about:blank",
        title="refused",
        status=status,
        detail="what happened",
        code=code,
        hint="what to do",
        retryable=False,
        retry_after_ms=retry_after_ms,
    )
    return msgspec.json.encode(body)


def test_a_problem_is_the_error_that_the_node_raised() -> None:
    error = problem_error(503, _document("MAILBOX_FULL", 503))
    assert isinstance(error, MailboxFull)
    assert (error.message, error.hint) == ("what happened", "what to do")


@pytest.mark.parametrize(("status", "authenticated"), [(401, False), (403, True)])
def test_the_status_tells_a_bad_token_from_one_that_does_not_allow_this(
    status: int, authenticated: bool
) -> None:
    error = problem_error(status, _document("UNAUTHORIZED", status))
    assert isinstance(error, Unauthorized)
    assert error.authenticated == authenticated


def test_a_rate_limit_says_when_to_come_back() -> None:
    error = problem_error(429, _document("RATE_LIMITED", 429, retry_after_ms=2500))
    assert isinstance(error, RateLimited)
    assert error.retry_after == 2.5


def test_a_code_of_a_newer_node_is_named() -> None:
    error = problem_error(409, _document("NEVER_HEARD_OF", 409))
    assert type(error) is MeshError
    assert error.message == "NEVER_HEARD_OF: what happened"


@pytest.mark.parametrize("status", [200, 302, 404, 502])
@pytest.mark.parametrize(
    "content",
    [b"", b"<html>Bad Gateway</html>", b"{}", b'{"detail": "\xff"}', b'{"detail": ' + b"[" * 100_000],
    ids=["empty", "html", "no fields", "no UTF-8", "deep"],
)
def test_what_no_node_would_say_is_from_no_node(status: int, content: bytes) -> None:
    response = httpx.Response(status, content=content, request=httpx.Request("GET", "http://there/v1/node"))
    with pytest.raises(Unreachable, match=f"at there is no known RelayMesh node: HTTP {status}"):
        answer_of(response, NodeAnswer)
