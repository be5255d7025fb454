"""The entries of the log of bronze, and what they hold together at one moment."""

from __future__ import annotations

import msgspec

from relaymesh.pipeline.bronze.spans import Forgotten, Gap, SegmentRead, Stretch, furthest, joined, merged
from relaymesh.pipeline.tables.manifest import Input, Piece

__all__ = ["Batch", "BronzeSnapshot", "Generation"]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A log entry: one batch of the stream, durable."""

    batch: int
    run_id: str
    committed_at: str
    pieces: list[Piece]
    stretches: list[Stretch]
    gaps: list[Gap] = []
    segments: list[SegmentRead] = []
    content: bool = True
    """Whether its rows hold the content of messages."""

    @property
    def rows(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """Batches 0 to `through_batch`, as compaction left them."""

    generation: int = 0
    through_batch: int = -1
    run_id: str = ""
    pieces: list[Piece] = []
    stretches: list[Stretch] = []
    gaps: list[Gap] = []
    segments: list[SegmentRead] = []
    content: bool = True
    """Whether any of its rows hold the content of messages."""
    kept: list[Piece] = []
    """Of the days that were forgotten: events that later ones are judged by, see retention.py."""
    forgotten: list[Forgotten] = []


class BronzeSnapshot(msgspec.Struct, frozen=True):
    """What bronze held at one moment. Its files stay while a kept manifest or the log names them."""

    generation: Generation
    batches: list[Batch]

    @property
    def through_batch(self) -> int:
        return self.batches[-1].batch if self.batches else self.generation.through_batch

    @property
    def pieces(self) -> list[Piece]:
        """Everything there is to read."""
        return [*self.generation.kept, *self.of_events]

    @property
    def of_events(self) -> list[Piece]:
        """Without what was kept of days that were forgotten."""
        return [*self.generation.pieces, *(piece for batch in self.batches for piece in batch.pieces)]

    @property
    def forgotten(self) -> list[Forgotten]:
        return self.generation.forgotten

    @property
    def stretches(self) -> list[Stretch]:
        """One for each source, partition and day, in order."""
        return merged([*self.generation.stretches, *(own for each in self.batches for own in each.stretches)])

    @property
    def gaps(self) -> list[Gap]:
        """What is known to be missing, in order; neighbours are one."""
        return joined([*self.generation.gaps, *(gap for batch in self.batches for gap in batch.gaps)])

    @property
    def segments(self) -> list[SegmentRead]:
        """How far each segment of each source was read; not those that older versions read."""
        own = [*self.generation.segments, *(read for batch in self.batches for read in batch.segments)]
        return furthest(own)

    @property
    def content(self) -> bool:
        """Whether rows of it hold the content of messages."""
        entries: list[Generation | Batch] = [self.generation, *self.batches]
        return any(each.content and each.pieces for each in entries)

    @property
    def days(self) -> list[str]:
        return sorted({piece.day for piece in self.of_events})

    @property
    def rows(self) -> int:
        return sum(stretch.rows for stretch in self.stretches)

    def through(self, batch: int) -> BronzeSnapshot:
        """As it was when `batch` was the last."""
        return BronzeSnapshot(self.generation, [each for each in self.batches if each.batch <= batch])

    def after(self, batch: int) -> list[Batch]:
        return [each for each in self.batches if each.batch > batch]

    def inputs(self) -> list[Input]:
        """How far each partition of each source has been read; also where nothing of it is there: in known
        gaps, and in days that were forgotten."""
        found: dict[tuple[str, int], list[Stretch]] = {}
        without: list[Gap | Forgotten] = [*self.gaps, *self.forgotten]
        empty = [Stretch(each.source, each.partition, "", each.first, each.last, 0) for each in without]
        for stretch in [*self.stretches, *empty]:
            found.setdefault((stretch.source, stretch.partition), []).append(stretch)
        return [
            Input(
                source=source,
                partition=partition,
                first_sequence=min(each.first for each in own),
                through_sequence=max(each.last for each in own),
                events=sum(each.rows for each in own),
            )
            for (source, partition), own in sorted(found.items())
        ]
