"""From the words of a node that refuses back to the error it raised."""

from __future__ import annotations

from relaymesh import errors
from relaymesh.errors import MeshError, RateLimited, Unauthorized


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
    """The same error, here. A code this version does not know is a plain `MeshError` that names it."""
    kind = _KINDS.get(code)
    if kind is None:
        return MeshError(f"{code}: {detail}", hint=hint)
    if issubclass(kind, Unauthorized):
        return kind(detail, hint=hint or None, authenticated=authenticated)
    if issubclass(kind, RateLimited):
        return kind(detail, hint=hint or None, retry_after=(retry_after_ms or 1000) / 1000)
    return kind(detail, hint=hint or None)
