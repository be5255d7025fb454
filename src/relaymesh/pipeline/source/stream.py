"""Streaming: each micro-batch reads the events that were synced since the last one, up to its limit.

All methods but `read` run on the driver, in one process for each run of a query.
"""

# ruff: noqa: N802 - Spark calls these methods by its own names

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from relaymesh.errors import JournalDamaged
from relaymesh.journal.consumers import write_consumer
from relaymesh.pipeline.source.history import holds, went_its_own_way
from relaymesh.pipeline.source.naming import is_mesh_id
from relaymesh.pipeline.source.offsets import Offset, Position, latest, reached
from relaymesh.pipeline.source.options import Directory, SourceOptions
from relaymesh.pipeline.source.plan import Piece, plan, whole_range
from relaymesh.pipeline.source.reading import read_piece

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

__all__ = ["StreamReader"]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are kept by Spark; the only thing remembered here is where an availableNow run ends."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Offset | None = None

    def initialOffset(self) -> Offset:
        options = self._options
        return {each.name: whole_range(each, options)[0].encode() for each in options.directories}

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.batch_rows
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {each.name: latest(each.disk()).encode() for each in self._options.directories}

    def reportLatestOffset(self) -> Offset:
        return {each.name: latest(each.disk()).encode() for each in self._options.directories}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next micro-batch. A directory that is no longer read keeps its position."""
        begins = self._positions(start)
        left = {name: stored for name, stored in start.items() if name not in self._earlier_keys(start)}
        ends = {name: self._end(name, begin) for name, begin in begins.items()}
        waiting = {name: ends[name].sequence - begin.sequence for name, begin in begins.items()}
        if isinstance(limit, ReadMinRows) and sum(waiting.values()) < limit.min_rows and self._target is None:
            ends = begins
        elif isinstance(limit, ReadMaxRows):
            for name, rows in _shares(waiting, limit.max_rows).items():
                if rows < waiting[name]:
                    ends[name] = self._reached(name, begins[name], rows, ends[name])
        return {**left, **{name: end.encode() for name, end in ends.items()}}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        begins = self._positions(start)
        keys = {each.name: _key(each, end) for each in self._options.directories}
        ends = {name: Position.decode(end[key]) for name, key in keys.items() if key is not None}
        options = self._options
        if options.tasks is not None:
            rows = sum(max(0, ends[name].sequence - begins[name].sequence) for name in ends)
            options = replace(options, rows=max(1, -(-rows // options.tasks)))
        return [
            piece
            for name, last in ends.items()
            for piece in plan(self._directory(name), options, begins[name], last)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Piece):
            yield from read_piece(partition, self._options)

    def commit(self, end: Offset) -> None:
        """The reader has everything before `end`: with a named consumer, the nodes may drop these events."""
        if self._options.consumer is not None:
            for name, position in self._positions(end).items():
                write_consumer(self._directory(name).disk(), self._options.consumer, position.sequence)

    def _positions(self, offset: Offset) -> dict[str, Position]:
        """The position in each directory; a directory that is new to the query is read from its beginning."""
        return {
            each.name: whole_range(each, self._options)[0] if key is None else Position.decode(offset[key])
            for each in self._options.directories
            for key in [_key(each, offset)]
        }

    def _earlier_keys(self, offset: Offset) -> set[str]:
        """Names that older versions gave to directories. Once they are read under their own, these must go.

        Another mesh may lie at such a path later.
        """
        found = {each.name: _key(each, offset) for each in self._options.directories}
        return {key for name, key in found.items() if key is not None and key != name}

    def _end(self, name: str, begin: Position) -> Position:
        """The last place a micro-batch may reach now; never before the one it begins at."""
        directory = self._directory(name)
        if went_its_own_way(directory.disk(), begin):
            raise JournalDamaged(
                f"{directory.given} is a copy of the mesh {name} that has diverged: before event "
                f"{begin.sequence} it holds others than those that were read",
                hint="name the directory that was read, or read this one under a new checkpoint",
            )
        target = latest(directory.disk())
        if begin.segment and target.sequence < begin.sequence:
            raise JournalDamaged(
                f"{directory.given} ends before event {target.sequence}, and {begin.sequence - 1} was read "
                f"from the mesh {name}",
                hint="it is another journal, or a copy that lacks events: read it under a new checkpoint",
            )
        if self._target is not None:
            target = min(target, Position.decode(self._target[name]))
        if target.sequence > self._options.through + 1:
            target = Position(self._options.through + 1)
        return target if target.sequence > begin.sequence else begin

    def _reached(self, name: str, begin: Position, rows: int, end: Position) -> Position:
        if rows == 0:
            return begin
        position = reached(self._directory(name).disk(), begin, rows)
        return position if position.sequence < end.sequence else end

    def _directory(self, name: str) -> Directory:
        return next(each for each in self._options.directories if each.name == name)


def _key(directory: Directory, offset: Offset) -> str | None:
    """Under which name its place is stored: its own, or one from before it had that.

    Older versions named a directory by its path as it was given then; one without a mesh id has a name that
    may change with its oldest segment, and ends with its next start. The segment at which it was left, known
    by its salt, is then the same.
    """
    for name in (directory.name, *directory.was):
        if name in offset:
            return name
    paths = {Path(each).expanduser().resolve() for each in (directory.root, directory.given)}
    unnamed = [key for key in offset if not is_mesh_id(key)]
    for key in unnamed:
        if Path(key).expanduser().resolve() in paths:
            return key
    return next((key for key in unnamed if holds(directory.disk(), [Position.decode(offset[key])])), None)


def _shares(waiting: dict[str, int], rows: int) -> dict[str, int]:
    """Divide `rows` between the directories: equal shares; what one does not need goes to the others."""
    shares: dict[str, int] = {}
    for left, name in zip(range(len(waiting), 0, -1), sorted(waiting, key=waiting.__getitem__), strict=True):
        shares[name] = min(waiting[name], -(-rows // left))
        rows -= shares[name]
    return shares
