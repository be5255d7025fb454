"""The end of a log file, and what is written to it from now on."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from relaymesh.errors import NotFound

__all__ = ["followed"]

LOOK_EVERY_S = 0.2


def followed(path: Path, count: int, *, follow: bool) -> Iterator[str]:
    """The last `count` lines; then, with `follow`, each new one. A file that begins anew is followed on."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"there is no log {path.name} yet", hint="relaymesh ps lists the agents") from None
    with file:
        for line in deque(file, maxlen=count):
            yield _text(line)
        while follow:
            line = _next(file)
            if line:
                yield _text(line)
            elif _is_another(file, path):
                break
            else:
                time.sleep(LOOK_EVERY_S)
    if follow:
        yield from followed(path, 1_000_000, follow=True)


def _next(file: BinaryIO) -> bytes:
    """A whole line, or nothing: the rest of a line that is being written comes later."""
    where = file.tell()
    line = file.readline()
    if line.endswith(b"\n"):
        return line
    file.seek(where)
    return b""


def _is_another(file: BinaryIO, path: Path) -> bool:
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\n")
