"""Where a warehouse may be."""

from __future__ import annotations

import re
from pathlib import Path

from relaymesh.errors import InvalidSettings

__all__ = ["folder_of"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)
"""A scheme has two characters or more: one is a drive of Windows. `Path` leaves one slash of several."""


def folder_of(given: str | Path, what: str) -> Path:
    """The absolute path of a folder. `InvalidSettings` for a URL, which `Path` would take for a folder."""
    url = _URL.match(str(given))
    if url is not None:
        shown = given if isinstance(given, str) else f"{url[1]}://{url[2]}"
        raise InvalidSettings(
            f"{what} {shown} is a URL, and must be a folder of a file system",
            hint="name a path, or mount the store: publishing needs a rename, which object stores lack",
        )
    return Path(given).absolute()
