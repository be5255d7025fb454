"""What the tables say wrongly."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from pathlib import Path
from typing import Any

from relaymesh.journal import Disk
from relaymesh.kernel.records import Dropped, Redriven, Returned
from relaymesh.node import opening
from relaymesh.store.changes import _COLLECT, Changes
from relaymesh.testing.planted.bug import Original, at, plant


@plant(at(_COLLECT, Returned), broken="retries are not projected into the store")
def retries_not_stored(original: Original, changes: Changes, *arguments: Any) -> None:
    pass


@plant(at(_COLLECT, Dropped), broken="the store shows a dropped message as acked")
def drop_stored_as_ack(
    original: Original, changes: Changes, base: int, record: Dropped, detail: object
) -> None:
    changes._settle(record.mailbox, record.sequences, ("acked", 1, record.at))


@plant(at(_COLLECT, Redriven), broken="a redriven dead letter stays in the store's list of dead letters")
def redriven_letter_stays(
    original: Original, changes: Changes, base: int, record: Redriven, detail: int
) -> None:
    changes._redriven.append((base, record, detail))


@plant(at(opening, "rebuild_store"), broken="a store that is lost or behind is not built anew", first_seed=14)
def store_not_rebuilt(original: Original, disk: Disk, store_path: Path) -> int:
    return 0
