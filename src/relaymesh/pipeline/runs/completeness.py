"""Checks that bronze has all events of the journals. It compares bronze with the ranges of the journals, not
only with its log.

From the first event that a journal still has, bronze must have every event once, up to the last that it has
taken in; after an ingest, up to the end of the journal when the ingest began. Reads names and headers of
segments; no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from shlex import quote

from relaymesh.journal import FIRST_SEQUENCE
from relaymesh.journal.segment import list_segments
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.bronze.folder import Bronze
from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot
from relaymesh.pipeline.bronze.spans import Stretch
from relaymesh.pipeline.runs.standing import Stand, standing, why_not
from relaymesh.pipeline.source.offsets import latest
from relaymesh.pipeline.tables.inspection import Finding
from relaymesh.pipeline.tables.manifest import Input
from relaymesh.pipeline.tables.sources import SOURCES, Source, known_sources

__all__ = ["CHECKPOINT", "against_checkpoint", "against_journals", "how_to_rebuild", "journal_ends"]

CHECKPOINT = Path("checkpoints") / "bronze"


def journal_ends(sources: Iterable[Source]) -> dict[str, int]:
    """By source, the sequence after its last synced event."""
    return {each.id: latest(RealDisk(Path(each.path))).sequence for each in sources}


def against_journals(
    snapshot: BronzeSnapshot, sources: Mapping[str, Source], reached: Mapping[str, int] | None = None
) -> list[Finding]:
    """What is missing or duplicated. `reached`: how far an ingest must have come, see `journal_ends`."""
    found: list[Finding] = []
    taken: dict[str, Input] = {}
    for each in snapshot.inputs():
        known = sources.get(each.source)
        if known is None or known.partition != each.partition:
            why = f"bronze has events of {each.source} as partition {each.partition}, and it does not say so"
            found.append(Finding(SOURCES, why))
        taken[each.source] = each
    for id, source in sources.items():
        own = [each for each in _apart(snapshot) if (each.source, each.partition) == (id, source.partition)]
        found += _holes(source.path, own)
        if source.forgotten:
            continue
        stands = standing(Path(source.path), source, snapshot)
        if stands.stand is not Stand.CONTINUES:
            found.append(Finding(SOURCES, why_not(source, source.path, stands)))
            continue
        found += _edges(source, taken.get(id), None if reached is None else reached.get(id))
    return found


def _apart(snapshot: BronzeSnapshot) -> list[Stretch]:
    """Not merged: a missing range is visible between two of them. Known gaps do not count as missing."""
    gaps = [
        Stretch(each.source, each.partition, "", each.first, each.last, each.events) for each in snapshot.gaps
    ]
    batches = [own for batch in snapshot.batches for own in batch.stretches]
    return [*snapshot.generation.stretches, *batches, *gaps]


def _holes(source: str, stretches: list[Stretch]) -> Iterable[Finding]:
    ordered = sorted(stretches, key=lambda each: each.first)
    span = max((each.last for each in ordered), default=0) - (ordered[0].first if ordered else 1) + 1
    if sum(each.rows for each in ordered) == span:
        return  # every one, whichever day each of them is filed under
    for each in ordered:
        if each.rows != each.last - each.first + 1:
            held = f"{each.rows} events between {each.first} and {each.last} of {source}"
            yield Finding("bronze", f"it has {held}: some are missing, or there twice")
    for before, after in pairwise(ordered):
        if after.first > before.last + 1:
            yield _lacks(source, before.last + 1, after.first - 1)
        elif after.first <= before.last:
            yield Finding("bronze", f"it has events {after.first} to {before.last} of {source} twice")


def _edges(read: Source, taken: Input | None, reached: int | None) -> Iterable[Finding]:
    source = read.path
    segments = list_segments(RealDisk(Path(source)))
    begins = max(read.first, segments[0].name.first_sequence if segments else FIRST_SEQUENCE)
    if taken is None:
        if reached is not None and reached > begins:
            yield _lacks(source, begins, reached - 1)
        return
    if begins < taken.first_sequence:
        yield _lacks(source, begins, taken.first_sequence - 1)
    if reached is not None and reached > taken.through_sequence + 1:
        yield _lacks(source, taken.through_sequence + 1, reached - 1)


def _lacks(source: str, first: int, last: int) -> Finding:
    events = f"event {first}" if first == last else f"events {first} to {last}"
    return Finding("bronze", f"it lacks {events} of {source}")


def against_checkpoint(bronze: Bronze) -> list[Finding]:
    """Bronze and Spark's checkpoint must agree; an ingest may run meanwhile."""
    checkpoint = bronze.root / CHECKPOINT
    done = _newest(checkpoint / "commits")
    through = bronze.snapshot().through_batch
    planned = _newest(checkpoint / "offsets")
    numbers = sorted(_numbers(checkpoint / "offsets"))
    for before, after in pairwise(numbers):
        if after != before + 1:  # Spark removes the oldest only
            return [Finding(f"{CHECKPOINT.as_posix()}/offsets/{before + 1}", "it is missing")]
    if done <= through <= planned:
        return []
    ends = f"the checkpoint ends with batch {done} of {planned}, and bronze with batch {through}"
    why = f"{ends}: one of them was removed or restored alone"
    if max(done, through) > planned:
        return [Finding(CHECKPOINT.as_posix(), why)]
    if through < 0 and any(bronze.folder.glob("batch=c-*")):
        return [Finding("bronze/generation.json", f"it is missing: {why}")]
    return [Finding(f"bronze/log/{through + 1:08}.json", f"it is missing: {why}")]


def _newest(folder: Path) -> int:
    return max(_numbers(folder), default=-1)


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("[0-9]*") if path.name.isdecimal()]


def how_to_rebuild(warehouse: Path, snapshot: BronzeSnapshot) -> str:
    """What to do when files of bronze are lost: rebuild it from the journals, as far back as they go."""
    bronze, checkpoints = quote(str(warehouse / "bronze")), quote(str(warehouse / "checkpoints"))
    away = f"move {bronze} and {checkpoints} away, then relaymesh pipeline run"
    gone = []
    sources = known_sources(warehouse)
    for each in snapshot.inputs():
        path = sources[each.source].path if each.source in sources else each.source
        segments = list_segments(RealDisk(Path(path)))
        begins = segments[0].name.first_sequence if segments else each.through_sequence + 1
        if begins > each.first_sequence:
            gone.append(f"{each.first_sequence} to {begins - 1} of {path}")
    if not gone:
        return f"restore it from a copy, or {away}: the journals still hold every event"
    lost = f"the journals no longer hold the events {', '.join(gone)}"
    return f"restore it from a copy; {lost}. To go on without those: {away}"
