"""Where a warehouse may be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from relaymesh.errors import InvalidSettings
from relaymesh.journal.layout import JOURNAL, is_own_name

__all__ = ["check_apart", "folder_of"]

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


def check_apart(warehouse: Path, directories: Iterable[Path]) -> None:
    """`InvalidSettings` for a warehouse among the files of a mesh, or around a data directory.

    A folder of its own in a data directory, such as the default `tables`, is apart.
    """
    folder = warehouse.resolve()
    around = [each for each in (folder, *folder.parents) if (each / JOURNAL).is_dir()]
    for directory in {each.resolve() for each in (*directories, *around)}:
        if directory.is_relative_to(folder):
            problem = f"is the data directory {directory}, or holds it"
        elif folder.is_relative_to(directory) and is_own_name(folder.relative_to(directory).parts[0]):
            problem = f"is among the files of the mesh in {directory}"
        else:
            continue
        raise InvalidSettings(
            f"the warehouse {warehouse} {problem}",
            hint=f"name a folder of its own: --warehouse {quote(str(directory / 'tables'))}",
        )
