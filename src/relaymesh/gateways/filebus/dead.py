"""Putting files into `dead/`, with the reason beside them."""

from __future__ import annotations

import stat
from typing import Any

import msgspec

from relaymesh.errors import MeshError
from relaymesh.gateways.filebus.folder import Folder
from relaymesh.gateways.filebus.names import REASON
from relaymesh.wire.envelope import iso


def reason_of(error: MeshError, *, file: str, at: float) -> dict[str, Any]:
    """Why a send is dead: the fields of every error, the file, and when."""
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "retryable": error.retryable,
        "file": file.encode("utf-8", "backslashreplace").decode(),
        "at": iso(int(at * 1000)),
    }


def pretty(words: dict[str, Any]) -> bytes:
    """JSON with one field a line: a shell script has sed, and no JSON parser."""
    return msgspec.json.format(msgspec.json.encode(words)) + b"\n"


def write_reason(dead: Folder, stem: str, words: dict[str, Any]) -> None:
    dead.write(stem + REASON, pretty(words))


def bury(dead: Folder, stem: str, reason: dict[str, Any], files: dict[str, tuple[Folder, str]]) -> None:
    """The reason first, then the files: name to (folder, ending), as `<stem><ending>`.

    A link, pipe or device is removed: it holds no data, and a person who opens it in `dead/` would be led
    to somewhere else.
    """
    write_reason(dead, stem, reason)
    for name, (folder, ending) in files.items():
        seen = folder.stat(name)
        if seen is None:
            continue
        if stat.S_ISREG(seen.st_mode) or stat.S_ISDIR(seen.st_mode):
            folder.move(name, dead, stem + ending)
        else:
            folder.remove(name)
