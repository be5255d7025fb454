"""The store: queryable tables projected from synced journal records. Never the truth, always rebuildable.

What it promises: each transaction holds whole records and the sequence it ends at, so after any
crash `applied` says exactly where to go on; projecting a record a second time changes nothing;
a store built anew from the journal has the same rows as one that followed it live.

What the caller must do: offer only records that are synced, in order and without gaps; call
`project` and `purge` from one thread at a time; rebuild rather than repair.
"""

from relaymesh.store.projection import Projection, State
from relaymesh.store.sqlite import Purged, SqliteStore, rebuild
from relaymesh.store.tasks import TaskPage
from relaymesh.store.views import LetterRow, MessageRow

__all__ = [
    "Projection",
    "State",
    "SqliteStore",
    "Purged",
    "rebuild",
    "MessageRow",
    "LetterRow",
    "TaskPage",
]
