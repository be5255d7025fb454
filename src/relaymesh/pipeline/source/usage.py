"""The usage in a message, from the fields that its sender added. Without content, nothing else of these
fields is read."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.pipeline.schema.content import USAGE

__all__ = ["usage_in"]


def usage_in(extra: bytes | None) -> str | None:
    """`usage` and `metadata.usage` as JSON, numbers alone; None where there are none."""
    if extra is None:
        return None
    try:
        given = msgspec.json.decode(extra)
    except msgspec.DecodeError:
        return None
    own, metadata = _numbers(_of(given, "usage")), _numbers(_of(_of(given, "metadata"), "usage"))
    found: dict[str, Any] = {"usage": own} if own else {}
    if metadata:
        found["metadata"] = {"usage": metadata}
    return msgspec.json.encode(found).decode() if found else None


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _numbers(usage: Any) -> dict[str, int | float]:
    found = ((name, _of(usage, name)) for name in USAGE)
    return {name: value for name, value in found if type(value) in (int, float)}
