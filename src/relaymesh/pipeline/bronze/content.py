"""Whether bronze stores the content of messages, or only their metadata: `content.json`. A new warehouse
stores no content: no table is made from it, and content that is not stored cannot leak. A warehouse of a
version without this option has content, and continues to store it. A change applies to new events; a
compaction removes the content of older ones (compaction.py).
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from relaymesh.errors import JournalDamaged
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.tables.durable import swap_file
from relaymesh.pipeline.tables.manifest import encode

__all__ = ["keeps_content", "settle_content"]

FILE = "content.json"

log = logging.getLogger("relaymesh.pipeline")


class _Noted(msgspec.Struct, frozen=True):
    keep: bool


def keeps_content(root: Path) -> bool:
    """Whether the next events come with their content."""
    path = root / FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Noted).keep
    except FileNotFoundError:
        return (root / "manifest.json").exists() or Bronze(root).snapshot().through_batch >= 0
    except msgspec.DecodeError as error:
        raise JournalDamaged(
            f"{path} does not read back: {error}",
            hint="remove it, and name with the next run what it said: --content keep, or --content drop",
        ) from error


def settle_content(root: Path, asked: str | None) -> None:
    """Note `keep` or `drop`, or what holds without a word, so that later runs keep to it."""
    before = keeps_content(root)
    now = before if asked is None else asked == "keep"
    if now == before and (root / FILE).exists():
        return
    swap_file(root / FILE, encode(_Noted(now)))
    snapshot = Bronze(root).snapshot()
    if now == before or not snapshot.rows:
        return
    if now:
        log.warning("events come with content from now on; the %d before stay without", snapshot.rows)
    else:
        log.warning(
            "events come without content from now on; relaymesh pipeline compact removes it from %d before",
            snapshot.rows,
        )
