"""Old files of a bus: which there are, and removing them.

Only plain files go, and only those whose names the gateway gives: what another program left here stays, and
keeps its directory. No link is followed. A file that vanishes meanwhile is no error. Of a refused send the
reason goes last: a purge that dies in between is completed by the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from relaymesh.errors import DirectoryError
from relaymesh.gateways.filebus.folder import Folder
from relaymesh.gateways.filebus.inbox import ENDINGS
from relaymesh.gateways.filebus.names import (
    LOST,
    META,
    REASON,
    RECEIPT,
    VERDICT,
    is_day,
    is_send,
    stem_of,
    token_of,
)
from relaymesh.gateways.filebus.notices import Notices
from relaymesh.gateways.filebus.tree import Tree

__all__ = ["OldFiles", "purge_files", "survey_files"]

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class OldFiles:
    """Old files of one kind and place. Times are seconds since 1970."""

    kind: str
    place: str
    count: int
    bytes: int
    oldest: float
    newest: float


class _Old(NamedTuple):
    """One file that is old enough: `name` in `folder`."""

    kind: str
    folder: Folder
    place: str
    name: str
    seen: os.stat_result


def survey_files(tree: Tree, done_before: float | None, dead_before: float | None) -> list[OldFiles]:
    """Count the files of settled deliveries, and of refused sends, that are older than these times."""
    found: dict[tuple[str, str], OldFiles] = {}
    for old in _old(tree, done_before, dead_before):
        key, at = (old.kind, old.place), old.seen.st_mtime
        before = found.get(key)
        found[key] = (
            OldFiles(*key, 1, old.seen.st_size, at, at)
            if before is None
            else OldFiles(
                *key,
                before.count + 1,
                before.bytes + old.seen.st_size,
                min(before.oldest, at),
                max(before.newest, at),
            )
        )
    return [found[key] for key in sorted(found)]


def purge_files(
    tree: Tree, done_before: float | None, dead_before: float | None, notices: Notices | None = None
) -> dict[str, int]:
    """Remove them. Returns how many of each kind. `notices` hears what could not be removed."""
    removed: dict[str, int] = {}
    for old in _old(tree, done_before, dead_before):
        try:
            if old.folder.remove(old.name):
                removed[old.kind] = removed.get(old.kind, 0) + 1
        except OSError as error:
            _say(notices, f"{old.place}/{old.name}", f"cannot be purged: {error.strerror}")
    if done_before is not None:
        _remove_empty_days(tree, done_before, notices)
    return removed


def _old(tree: Tree, done_before: float | None, dead_before: float | None) -> Iterator[_Old]:
    if done_before is not None:
        for day in _old_days(tree, done_before):
            yield from _of_day(tree, day)
        yield from _by_age("receipts", tree.receipt, "receipt", RECEIPT, done_before)
        for worker, folder in sorted(tree.look_for_workers(anew=True).items()):
            yield from _by_age("lost", folder, f"processing/{worker}", LOST, done_before)
    if dead_before is not None:
        yield from _dead(tree, dead_before)


def _old_days(tree: Tree, before: float) -> list[str]:
    """Days of `done/` that had ended by then: every file in them is at least as old."""
    return [day for day in tree.done.others(anew=True) if is_day(day) and _end_of(day) <= before]


def _end_of(day: str) -> float:
    try:
        return datetime.combine(date.fromisoformat(day) + timedelta(days=1), time(), UTC).timestamp()
    except OverflowError:  # the last day of year 9999
        return float("inf")


def _of_day(tree: Tree, day: str) -> Iterator[_Old]:
    try:
        folder = tree.done.folder(day)
    except (DirectoryError, OSError):
        return
    try:
        for name in folder.files():
            stems = [stem_of(name, ending) for ending in (META, *ENDINGS)]
            if any(stem is not None and token_of(stem) is not None for stem in stems):
                yield from _seen("done", folder, f"done/{day}", name)
    finally:
        folder.close()


def _by_age(kind: str, folder: Folder, place: str, ending: str, before: float) -> Iterator[_Old]:
    for name in folder.files(anew=True):
        stem = stem_of(name, ending)
        if stem is not None and _is_ours(stem):
            yield from [old for old in _seen(kind, folder, place, name) if old.seen.st_mtime < before]


def _dead(tree: Tree, before: float) -> Iterator[_Old]:
    """By the time of its reason, which the gateway wrote: a file keeps the time that its sender gave it."""
    for reason in _by_age("dead", tree.dead, "dead", REASON, before):
        stem = reason.name.removesuffix(REASON)
        rest = [stem + ending for ending in (META, *ENDINGS, VERDICT)]
        if any(name in tree.dead.others() for name in rest):
            continue  # a directory was sent in place of a file: what is in it is a person's to decide
        present = set(tree.dead.files())
        for name in rest:
            if name in present:
                yield from _seen("dead", tree.dead, "dead", name)
        yield reason


def _is_ours(stem: str) -> bool:
    return is_send(stem) or token_of(stem) is not None


def _seen(kind: str, folder: Folder, place: str, name: str) -> Iterator[_Old]:
    seen = folder.stat(name)
    if seen is not None:
        yield _Old(kind, folder, place, name, seen)


def _remove_empty_days(tree: Tree, before: float, notices: Notices | None) -> None:
    for day in _old_days(tree, before):
        try:
            tree.done.remove_folder(day)
        except FileNotFoundError:
            continue
        except OSError as error:  # a link, or a directory with files of others
            _say(notices, f"done/{day}", f"is left: {error.strerror}")


def _say(notices: Notices | None, where: str, what: str) -> None:
    if notices is not None:
        notices.say(where, what)
