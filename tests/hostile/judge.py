"""What a caller may get: a result, `Empty`, a `MeshError` with a hint, or a wrong signature's TypeError."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import msgspec

from relaymesh.errors import DirectoryError, Empty, JournalPoisoned, MeshError

MESSAGE_CHARACTERS_MAX = 4_000
SIGNATURE = re.compile(
    r"unexpected keyword|multiple values|required (positional|keyword)|positional argument"
    r"|takes no (keyword )?arg"
    r"|Missing required argument|Extra positional arguments|keywords must be strings",
    re.IGNORECASE,
)
"""TypeErrors that Python, or a struct, gives for a wrong keyword or a wrong number of arguments."""


class Hung(BaseException):
    """A call did not come back in time. No `Exception`: nobody may take it for the outcome of a handler."""


def complaint(error: BaseException | None, *, opening: bool = False) -> str | None:
    """Why this is no outcome a caller may get; None when it is one. `opening`: the call opens a directory."""
    if error is None or isinstance(error, Empty):
        return None
    if isinstance(error, MeshError):
        return _badly_said(error) or _fatal(error, opening)
    if isinstance(error, TypeError) and SIGNATURE.search(str(error)):
        return None
    if isinstance(error, msgspec.ValidationError) and _frames(error)[-1].filename.endswith("sdk/typed.py"):
        return None  # of `as_type`, whose content does not fit: the failure contract knows it
    if not _ours(error) and any(frame.filename.endswith("enum.py") for frame in _frames(error)):
        return None  # of an enumeration, as every one of Python's
    return f"{type(error).__name__} came out"


def _badly_said(error: MeshError) -> str | None:
    if not error.hint:
        return f"{type(error).__name__} has no hint"
    try:
        text = str(error)
        text.encode()
    except Exception as broken:
        return f"{type(error).__name__} cannot be shown: {type(broken).__name__}"
    if len(text) > MESSAGE_CHARACTERS_MAX:
        return f"{type(error).__name__} is {len(text)} characters long"
    return None


def _fatal(error: MeshError, opening: bool) -> str | None:
    if isinstance(error, JournalPoisoned) or (isinstance(error, DirectoryError) and not opening):
        return f"{error.code}: the mesh is dead"
    return None


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return list(traceback.extract_tb(error.__traceback__))


def _ours(error: BaseException) -> bool:
    return any("/src/relaymesh/" in frame.filename for frame in _frames(error))


def where(error: BaseException) -> str:
    """The last line of this package that the error passed: `sdk/endings.py:95`."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        _, ours, rest = frame.filename.partition("src/relaymesh/")
        if ours:
            return f"{rest}:{frame.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
