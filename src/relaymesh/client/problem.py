"""Reading a node's response: the answer, or the error that the node raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import UNSET

from relaymesh import errors
from relaymesh.errors import MeshError, RateLimited, Unauthorized, Unreachable
from relaymesh.wire.api import ProblemBody

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")


def _by_code() -> dict[str, type[MeshError]]:
    kinds = [getattr(errors, name) for name in errors.__all__]
    return {kind.code: kind for kind in kinds if issubclass(kind, MeshError) and kind.code != MeshError.code}


_KINDS = _by_code()


def error_of(
    code: str,
    detail: str,
    hint: str = "",
    *,
    retry_after_ms: int | None = None,
    authenticated: bool = False,
) -> MeshError:
    """The same error as a local exception. An unknown code becomes a plain `MeshError` that names it."""
    kind = _KINDS.get(code)
    if kind is None:
        return MeshError(f"{code}: {detail}", hint=hint)
    if issubclass(kind, Unauthorized):
        return kind(detail, hint=hint or None, authenticated=authenticated)
    if issubclass(kind, RateLimited):
        return kind(detail, hint=hint or None, retry_after=(retry_after_ms or 1000) / 1000)
    return kind(detail, hint=hint or None)


def problem_of(content: bytes | bytearray) -> ProblemBody | None:
    """The problem document (RFC 9457) of a response; None if it has none, for example from a proxy."""
    return _decoded(content, ProblemBody)


def problem_error(status: int, content: bytes) -> MeshError | None:
    """The error that a node raised, from its HTTP response; None if the response is not from a node."""
    problem = problem_of(content)
    if problem is None:
        return None
    return error_of(
        problem.code,
        problem.detail,
        problem.hint,
        retry_after_ms=None if problem.retry_after_ms is UNSET else problem.retry_after_ms,
        authenticated=status == 403,
    )


def answer_of(response: httpx.Response, kind: type[Answer], or_status: int | None = None) -> Answer:
    """The node's answer. Raises the node's error, and `Unreachable` if the response is not from a node.

    `or_status`: a problem of this status may hold the answer, as in the response to a settle.
    """
    answer = error = None
    if response.is_success or response.status_code == or_status:
        answer = _decoded(response.content, kind)
    if not response.is_success:
        error = problem_error(response.status_code, response.content)
    if answer is not None:
        return answer
    raise error or Unreachable(
        f"what answers at {response.url.host} is no known RelayMesh node: HTTP {response.status_code}",
        hint="check the address; a proxy may answer in place of the node",
    )


def _decoded(content: bytes | bytearray, kind: type[Answer]) -> Answer | None:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
