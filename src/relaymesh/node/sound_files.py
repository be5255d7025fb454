"""What the settings files said when they were sound last: a node that starts again goes on with it.

A program that keeps a node running names a file for it (`relaymesh serve --kept-settings`). Then a
file of settings that was broken while the node ran does not keep it from starting again after a crash.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from relaymesh.errors import MeshError
from relaymesh.modes import replace_file
from relaymesh.wire.parameters import Value, checked

__all__ = ["SoundFiles", "keep", "kept_in"]

log = logging.getLogger("relaymesh.node")


class SoundFiles(msgspec.Struct, frozen=True):
    """The checked values of `relaymesh-settings.json` and of `[settings]` of a relaymesh.toml."""

    file: dict[str, Value]
    toml: dict[str, Value]


_decoder = msgspec.json.Decoder(SoundFiles)


def keep(path: Path, files: SoundFiles) -> None:
    """Replace what is kept. Not synced: it serves the next start of a process, not of the machine."""
    try:
        replace_file(path, msgspec.json.encode(files))
    except OSError as error:
        log.warning("the settings in force could not be kept in %s: %s", path, error)


def kept_in(path: Path) -> SoundFiles | None:
    """What is kept, checked again. None: nothing is, or it is damaged."""
    try:
        found = _decoder.decode(path.read_bytes())
        return SoundFiles(checked(found.file, path.name), checked(found.toml, path.name))
    except (OSError, ValueError, msgspec.MsgspecError, MeshError):
        return None
