"""Who may read what RelayMesh writes: its owner alone, whatever the umask. The one place that says so.

Files are 0600 and folders 0700. What is shared on request is `GROUP` (a file bus for a group of users) or
`READABLE` (a warehouse or a report for every user of the machine). Windows has no such modes: there, the
folder that it is put into decides.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "GROUP",
    "PRIVATE",
    "READABLE",
    "Modes",
    "apply_modes",
    "create_file",
    "make_folder",
    "replace_file",
    "set_mode",
]

log = logging.getLogger("relaymesh.modes")

_ANY = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_LOOK = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _ANY
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _ANY
_OTHERS = 0o077
_RIGHTS = 0o777
HAS_MODES = os.name != "nt"


class Modes(NamedTuple):
    """The mode of a file and of a folder."""

    file: int
    folder: int


PRIVATE = Modes(0o600, 0o700)
GROUP = Modes(0o660, 0o770)
READABLE = Modes(0o644, 0o755)


def create_file(path: str | Path, flags: int, mode: int = PRIVATE.file, *, dir_fd: int | None = None) -> int:
    """`os.open` with `O_CREAT`; the file has exactly this mode, also if it was there already and is ours."""
    descriptor = os.open(path, flags | os.O_CREAT | _ANY, mode, dir_fd=dir_fd)
    try:
        set_mode(descriptor, mode, str(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def replace_file(path: Path, data: bytes) -> None:
    """Replace the file: it has the old or the new content, never a part."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = create_file(draft, os.O_WRONLY | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def make_folder(path: Path, mode: int = PRIVATE.folder) -> list[Path]:
    """Make the folder and its missing parents, each with exactly this mode. Returns those that were made.

    What is there already stays as it is.
    """
    made: list[Path] = []
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        try:
            each.mkdir(mode)
        except FileExistsError:
            continue
        made.append(each)
        _set_mode_of_folder(each, mode)
    if not path.is_dir():
        raise NotADirectoryError(f"{path} is not a directory")
    return made


def set_mode(descriptor: int, mode: int, what: str) -> None:
    """Give an open file or folder of ours this mode. A file system that refuses is a warning in the log."""
    if not HAS_MODES:
        return
    found = os.fstat(descriptor)
    if found.st_mode & _RIGHTS == mode:
        return
    if found.st_uid != os.geteuid():
        _warn(what, found.st_mode, f"it belongs to user {found.st_uid}")
        return
    try:
        os.fchmod(descriptor, mode | found.st_mode & stat.S_ISGID)
    except OSError as error:
        _warn(what, found.st_mode, f"the file system refuses to change its mode: {error.strerror}")


def apply_modes(
    root: Path, is_own: Callable[[str], bool], modes: Modes = PRIVATE, *, ours: bool = False
) -> None:
    """Give others the rights of `modes`, and no others, on what is of our own names in a directory.

    `is_own` is asked for each path in it. No link is followed, and nothing else is touched: neither a
    stranger's file nor the parent. The directory itself is only changed if it is `ours`, or nothing but ours
    lies in it: a user may use it for more.
    """
    if not HAS_MODES:
        return
    try:
        descriptor = os.open(root, _FOLDER | os.O_NOFOLLOW)
    except OSError:
        return  # opening it says why it cannot be opened
    try:
        if _apply_inside(descriptor, root, "", is_own, modes) or ours:
            _apply(descriptor, modes.folder, str(root))
        else:
            _say_if_open(descriptor, root)
    finally:
        os.close(descriptor)


def _apply_inside(folder: int, root: Path, above: str, is_own: Callable[[str], bool], modes: Modes) -> bool:
    """Whether everything in it is ours."""
    alone = True
    for name in sorted(os.listdir(folder)):
        path = f"{above}{name}"
        if not is_own(path):
            alone = False
            continue
        try:
            seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # a temporary file of another thread or process
        is_folder = stat.S_ISDIR(seen.st_mode)
        as_wanted = (seen.st_mode ^ modes.file) & _OTHERS == 0
        if not is_folder and (as_wanted or not stat.S_ISREG(seen.st_mode)):
            continue
        try:
            descriptor = os.open(name, _LOOK, dir_fd=folder)
        except OSError as error:
            if seen.st_mode & _OTHERS and not isinstance(error, FileNotFoundError):
                _warn(str(root / path), seen.st_mode, f"it cannot be opened: {error.strerror}")
            continue
        try:
            if is_folder:
                _apply_inside(descriptor, root, f"{path}/", is_own, modes)
            _apply(descriptor, modes.folder if is_folder else modes.file, str(root / path))
        finally:
            os.close(descriptor)
    return alone


def _apply(descriptor: int, mode: int, what: str) -> None:
    """The owner's own rights stay as they are."""
    owners = os.fstat(descriptor).st_mode & _RIGHTS & ~_OTHERS
    set_mode(descriptor, owners | mode & _OTHERS, what)


def _say_if_open(descriptor: int, root: Path) -> None:
    mode = os.fstat(descriptor).st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        _warn(str(root), mode, "it holds files of others, so it was left as it is")


def _set_mode_of_folder(path: Path, mode: int) -> None:
    if not HAS_MODES:
        return
    descriptor = os.open(path, _FOLDER | getattr(os, "O_NOFOLLOW", 0))
    try:
        set_mode(descriptor, mode, str(path))
    finally:
        os.close(descriptor)


def _warn(what: str, mode: int, why: str) -> None:
    log.warning("%s has mode %04o and other users may reach it: %s", what, mode & _RIGHTS, why)
