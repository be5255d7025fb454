"""What goes into the store: a synced record, where it starts, and what `apply` knew beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.tasks.views import StepView, TaskView
from relaymesh.wire.records import Skipped

State = Literal["pending", "acked", "dropped", "dead", "redriven", "purged"]
"""The state of a message row. `pending` is everything unsettled: a due time in the future makes it
delayed, and leases live in the kernel alone. `dead` has a pending dead letter; it becomes `redriven`
or `purged` with that letter."""


class Projection(NamedTuple):
    """One record on its way into the store.

    `base` is the sequence of the record's first event. `detail` is, for `Published`, the
    mailbox addresses it was routed to; for `DeadLettered` the list of `DeadLetter`s, one an event; for
    `Redriven` the redrive count of the new entry; None for all others. A record that was passed over is
    `Skipped`: it changes no table and takes its sequences. `tasks` and `steps` are whole rows, as they were
    after the record; those of a frame come with its last record.
    """

    base: int
    record: AnyRecord | Skipped
    detail: object = None
    tasks: Sequence[TaskView] = ()
    steps: Sequence[StepView] = ()
