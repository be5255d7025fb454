"""Where a mesh lives when nobody says: `RELAYMESH_URL`, else `RELAYMESH_HOME`, else a folder at home."""

from __future__ import annotations

import os
from pathlib import Path

from relaymesh.errors import InvalidSettings


def data_directory(path: str | os.PathLike[str] | None) -> Path:
    """The directory to open. A URL is refused with a plain word: this version opens directories."""
    place = os.environ.get("RELAYMESH_URL") if path is None else os.fspath(path)
    if place and place.startswith(("http://", "https://")):
        raise InvalidSettings(
            f"{place} is a remote mesh, and this version opens directories only",
            hint="unset RELAYMESH_URL, or pass a directory",
        )
    if place:
        return Path(place).expanduser()
    home = os.environ.get("RELAYMESH_HOME")
    return Path(home).expanduser() if home else Path.home() / ".relaymesh"
