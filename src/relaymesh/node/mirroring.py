"""Which mirror a data directory has: the one in the settings, else the one recorded in the directory."""

from __future__ import annotations

import logging
from pathlib import Path
from shlex import quote

from relaymesh.errors import InvalidSettings, JournalDamaged
from relaymesh.journal import Disk, Mirror, MirrorMode, read_note, verify
from relaymesh.node.disk import RealDisk
from relaymesh.node.settings import MeshSettings

__all__ = ["mirror_of", "naming_the_way_out", "noted_mirror"]

log = logging.getLogger("relaymesh.node")


def mirror_of(path: Path, disk: Disk, settings: MeshSettings) -> Mirror | None:
    """The mirror to open the directory with. Raises `InvalidSettings` when one directory lies inside the
    other.
    """
    data = path.resolve()
    if settings.mirror is not None:
        place, mode = Path(settings.mirror).expanduser().resolve(), settings.mirror_mode
    else:
        noted = noted_mirror(path, disk)
        if noted is None:
            return None
        place, mode = noted
    if place == data or data in place.parents or place in data.parents:
        raise InvalidSettings(
            f"the mirror {place} and the data directory {data} overlap: one lies inside the other",
            hint="name a directory on another disk",
        )
    return Mirror(
        RealDisk(place), mode, name=str(place), of=str(data), queue_bytes_max=settings.mirror_queue_bytes
    )


def noted_mirror(path: Path, disk: Disk) -> tuple[Path, MirrorMode] | None:
    """The mirror recorded at the last opening. In a copied directory that record belongs to the original."""
    note = read_note(disk)
    if note is None:
        return None
    if note.of != str(path.resolve()):
        log.warning("%s is a copy of %s: it is not mirrored to %s", path, note.of, note.path)
        return None
    return Path(note.path), note.mode


def naming_the_way_out(error: JournalDamaged, mirror: Mirror) -> JournalDamaged:
    """The same refusal, with a hint whether the mirror can replace the damaged directory."""
    try:
        found = verify(mirror.disk)
    except OSError as unreadable:
        return JournalDamaged(error.message, hint=f"the mirror {mirror.name} cannot be read: {unreadable}")
    if found.damage:
        first = found.damage[0]
        bad = f"{first.segment} at offset {first.offset}: {first.why}"
        return JournalDamaged(error.message, hint=f"the mirror {mirror.name} is damaged too: {bad}")
    if not found.segments:
        return error
    restore = f"relaymesh journal restore --from {quote(mirror.name)} --dir {quote(mirror.of)}"
    return JournalDamaged(error.message, hint=f"the mirror is intact: {restore}")
