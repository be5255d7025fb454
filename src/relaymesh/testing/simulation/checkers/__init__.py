"""The checkers: one module per kind of promise, apart from what is played.

Each takes the history of the clients, and where it needs one the ledger read from the journal, and raises
`Violation` with the invariant's name. None of them calls the product's own logic, and none knows which
faults were played, but for power losses: some promises are weaker across one.
"""

from relaymesh.testing.simulation.checkers.admission import check_admission
from relaymesh.testing.simulation.checkers.deliveries import check_deliveries
from relaymesh.testing.simulation.checkers.fate import check_fate
from relaymesh.testing.simulation.checkers.purges import check_purges
from relaymesh.testing.simulation.checkers.schedules import check_schedules
from relaymesh.testing.simulation.checkers.settles import check_settles
from relaymesh.testing.simulation.checkers.shown import check_shown
from relaymesh.testing.simulation.checkers.talk import check_talk
from relaymesh.testing.simulation.checkers.task_tables import check_task_tables
from relaymesh.testing.simulation.checkers.tasks import check_tasks

__all__ = [
    "check_admission",
    "check_deliveries",
    "check_fate",
    "check_purges",
    "check_schedules",
    "check_settles",
    "check_shown",
    "check_talk",
    "check_task_tables",
    "check_tasks",
]
