"""The settings of a pipeline run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.pipeline.tables.warehouse_folder import check_apart, folder_of

__all__ = ["Content", "PipelineSettings"]

Content = Literal["keep", "drop"]


class PipelineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of the events, the place of the tables, and how much is done at once."""

    directories: tuple[Path, ...]
    """Data directories (or mirrors) whose journals are read."""
    warehouse: Path
    """Where bronze and the tables are kept. Every Spark executor must reach it under this path."""
    format: str = "parquet"
    """Format of the published tables: parquet, delta or iceberg. Bronze is always Parquet."""
    batch_events: int = 1_000_000
    """Events in one batch of the ingest at most. Raising it makes larger files, and more to repeat after a
    crash.
    """
    late_days: int = 1
    """This many days before the newest touched day are refreshed too. Later rows are never dropped: they
    re-open their day. This setting only bounds how long a day is refreshed without a new event."""
    tables_at_once: int = 3
    """Tables that are built at the same time. Raising it keeps a cluster busy, and needs more memory."""
    keep_days: int | None = None
    """Days that bronze and the tables hold, today (UTC) included; None: forget nothing. A run with this
    setting removes whole older days, with their history in all tables, once every message that began on them
    is settled. For `parquet` only."""
    keep_runs: int = 3
    """Publishes whose files are kept, so that a reader of an older manifest can finish. Raising it costs the
    disk space of the days that were refreshed."""
    publish_every_s: float = 30.0
    """`follow`: seconds between publishes. Each costs a refresh of the days touched, of gold and audit."""
    trigger_s: float = 2.0
    """`follow`: seconds between batches of the ingest."""
    freshness_s_max: float = 86_400.0
    """If the newest event is older than this, the metrics say so. It fails nothing: a quiet mesh is no error.
    """
    metrics_runs: int = 500
    """Runs whose rows `pipeline_metrics` keeps."""
    quarantine: str = "fail"
    """What a bad frame does to the ingest: `fail` stops before it, so that a restored segment is read whole;
    `rows` goes on after it: its events are a known gap, which each publish reports and each run reads again.
    """
    content: Content | None = None
    """`drop` leaves out of bronze what senders and handlers wrote: content, stack traces, their own fields.
    `keep` takes it in. None: no change; a new warehouse begins with `drop`. A change applies to new events;
    `compact` removes the content of older ones."""
    shared: bool | None = None
    """True: every user of the machine may read the tables; False: only their owner. None: no change; a new
    warehouse is readable by its owner only. A warehouse inside a data directory cannot be shared."""

    def __post_init__(self) -> None:
        check_apart(folder_of(self.warehouse, "the warehouse"), self.directories)
        inside = [each for each in self.directories if each.resolve() in self.warehouse.resolve().parents]
        if self.shared and inside:
            raise InvalidSettings(
                f"the warehouse {self.warehouse} cannot be shared: it lies in the data directory {inside[0]}",
                hint="name another place: --warehouse PATH",
            )
        if not self.directories:
            raise InvalidSettings("a pipeline needs at least one data directory", hint="--dir PATH")
        for name in ("batch_events", "tables_at_once", "keep_runs", "publish_every_s", "trigger_s"):
            if getattr(self, name) <= 0:
                raise InvalidSettings(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.quarantine not in ("fail", "rows"):
            raise InvalidSettings(f"quarantine is fail or rows, not {self.quarantine!r}")
        if self.content not in (None, *get_args(Content)):
            raise InvalidSettings(f"content is keep or drop, not {self.content!r}")
        if self.keep_days is not None and self.keep_days < 1:
            raise InvalidSettings(f"keep_days must be 1 or more, not {self.keep_days}")
        if self.keep_days is not None and self.format != "parquet":
            raise InvalidSettings(f"keep_days works on parquet tables, not on {self.format}")
        if self.late_days < 0:
            raise InvalidSettings(f"late_days must not be negative, and is {self.late_days}")
