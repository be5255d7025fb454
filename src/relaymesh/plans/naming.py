"""Names of workflows, steps and signals; stored workflows as people name them: `release`, or `release@3`."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import rfc8785

from relaymesh.errors import InvalidPlan, InvalidValue
from relaymesh.kernel.bounds import plain_text
from relaymesh.kernel.tasks.commands import workflow_name, workflow_version
from relaymesh.kernel.tasks.plan import NAME_LENGTH_MAX
from relaymesh.plans.position import one_line

__all__ = ["NAME_HINT", "document_digest", "is_name", "split_name"]

NAME_HINT = f"use letters, digits, '_', '-' and '.', at most {NAME_LENGTH_MAX}"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def is_name(value: Any) -> bool:
    """Whether this is a valid name of a workflow, a step or a signal."""
    return isinstance(value, str) and len(value) <= NAME_LENGTH_MAX and bool(_NAME.fullmatch(value))


def split_name(name: Any, version: Any = None) -> tuple[str, str]:
    """The name and the version of `release` or `release@3`; the version is empty if none is given."""
    plain, at, behind = plain_text(name, "the name of a workflow").partition("@")
    if at and version is not None:
        raise InvalidValue(f"a version is named twice, {behind[:80]!r} and another", hint="leave one out")
    if at and not behind:
        raise InvalidValue("the version behind '@' is missing", hint="write NAME@VERSION, or NAME")
    return workflow_name(plain), workflow_version(behind if version is None else version)


def document_digest(document: dict[str, Any]) -> bytes:
    """SHA-256 of a document as RFC 8785 canonical JSON: equal for documents that mean the same."""
    try:
        return hashlib.sha256(rfc8785.dumps(document)).digest()
    except rfc8785.IntegerDomainError as error:
        raise InvalidPlan(
            one_line(f"a workflow holds a whole number beyond 2^53, which JSON does not keep: {error}"),
            hint="write it as text",
        ) from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidPlan(one_line(f"a workflow is not JSON: {error}")) from None
