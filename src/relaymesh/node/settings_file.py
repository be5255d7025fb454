"""The settings file: `relaymesh-settings.json` in the data directory. It is accepted or refused as a whole.

Also `[settings]` of a `relaymesh.toml`, and the variables of the environment, under the same names.
"""

from __future__ import annotations

import codecs
import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from relaymesh.errors import InvalidSettings, MeshError
from relaymesh.kernel.bounds import shown
from relaymesh.wire.content import check_sound
from relaymesh.wire.parameters import PARAMETERS, ROWS, Value, checked, environment_name

__all__ = ["SETTINGS_FILE", "Stamp", "from_environment", "read_settings", "read_toml", "stamp_of"]

SETTINGS_FILE = "relaymesh-settings.json"
TOML_TABLE = "settings"
FILE_BYTES_MAX = 65_536
TOML_BYTES_MAX = 1_048_576
DEPTH_MAX = 4
READS_MAX = 3
"""How often a file that is replaced while it is read is read again."""
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_KEPT = "nothing was changed; correct the file, then: relaymesh settings reload"


class Stamp(NamedTuple):
    """Inode, size and times of a file: they show a change without reading it."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def stamp_of(path: Path) -> Stamp | None:
    """None: there is no such file, or it cannot be looked at."""
    try:
        return _stamp(path.stat())
    except (OSError, ValueError):
        return None


def read_settings(path: Path) -> dict[str, Value]:
    """The checked values of the file; none if there is no file. Raises `InvalidSettings`."""
    data = _read(path, FILE_BYTES_MAX)
    if data is None:
        return {}
    what = path.name
    try:
        check_sound(data, what=what, depth=DEPTH_MAX)
        given = msgspec.json.decode(data)
    except MeshError as error:
        raise InvalidSettings(error.message, hint=_KEPT) from None
    except msgspec.MsgspecError as error:
        raise InvalidSettings(f"{what} is not sound JSON: {error}", hint=_KEPT) from None
    if not isinstance(given, dict):
        raise InvalidSettings(f"{what} must hold one JSON object, not {shown(given)}", hint=_KEPT)
    return checked(given, what)


def read_toml(path: Path) -> dict[str, Value]:
    """The checked values of `[settings]` of this file; none if it has no such table."""
    data = _read(path, TOML_BYTES_MAX)
    what = f"[{TOML_TABLE}] of {path.name}"
    try:
        found: Any = tomllib.loads((data or b"").decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidSettings(f"{path.name} is not sound TOML: {error}", hint=_KEPT) from None
    given = found.get(TOML_TABLE, {})
    if not isinstance(given, dict):
        raise InvalidSettings(f"{what} must be a table, not {shown(given)}", hint=_KEPT)
    return checked(given, what)


def from_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    """The checked values of variables such as `RELAYMESH_MAX_ATTEMPTS`. An empty one is not given."""
    found: dict[str, Value] = {}
    for row in PARAMETERS:
        variable = environment_name(row.name)
        text = environment.get(variable)
        if text:
            found |= checked({row.name: _plain(row.name, text)}, f"the variable {variable}")
    return found


def _plain(name: str, text: str) -> Any:
    """The value of a text; the text itself if it is not a value, so that the check refuses it."""
    if len(text) > 40:
        return text
    kind = ROWS[name].kind
    try:
        if kind == "flag":
            return {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower(), text)
        return int(text) if kind == "whole" else float(text)
    except ValueError:
        return text


def _read(path: Path, most: int) -> bytes | None:
    """The bytes of a regular file as they were at one moment. None: there is no such file."""
    for _ in range(READS_MAX):
        try:
            descriptor = os.open(path, _OPEN)
        except FileNotFoundError:
            if path.is_symlink():
                raise InvalidSettings(f"{path.name} is a link to nothing", hint=_KEPT) from None
            return None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidSettings(f"{path.name} cannot be read: {reason}", hint=_KEPT) from None
        try:
            data = _read_open(descriptor, path, most)
        except OSError as error:
            raise InvalidSettings(
                f"{path.name} cannot be read: {error.strerror or error}", hint=_KEPT
            ) from None
        finally:
            os.close(descriptor)
        if data is not None:
            return data.removeprefix(codecs.BOM_UTF8)
    raise InvalidSettings(
        f"{path.name} was replaced or written while it was read, {READS_MAX} times in a row", hint=_KEPT
    )


def _read_open(descriptor: int, path: Path, most: int) -> bytes | None:
    """None: it was written, or another file took its name, meanwhile."""
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        raise InvalidSettings(f"{path.name} is no regular file", hint=_KEPT)
    if before.st_size > most:
        raise InvalidSettings(f"{path.name} has {before.st_size} bytes; {most} are allowed", hint=_KEPT)
    parts, left = [], most + 1
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    data = b"".join(parts)
    same = _stamp(os.fstat(descriptor)) == _stamp(before) == stamp_of(path) and len(data) == before.st_size
    return data if same else None


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
