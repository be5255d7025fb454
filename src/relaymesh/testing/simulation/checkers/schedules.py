"""What schedules promise: a receipted one is there, and no tick that is due is forgotten."""

from __future__ import annotations

from relaymesh.testing.simulation.history import History
from relaymesh.testing.simulation.ledger import Ledger
from relaymesh.testing.simulation.verdict import Violation


def check_schedules(history: History, ledger: Ledger) -> None:
    for name in history.scheduled:
        if name not in ledger.schedules.names:
            raise Violation("no_receipted_loss", f"schedule {name} was receipted, and the journal has it not")
    for told in ledger.schedules.told.values():
        if told.overdue and told.name not in history.refused_ticks:
            raise Violation("schedule_tick_lost", f"{told}: the tick {told.next_at} never ran")
