"""The checkers: one module per kind of promise, apart from what is played.

Each takes the history of the clients, and where it needs one the ledger read from the journal, and raises
`Violation` with the invariant's name. None of them calls the product's own logic, and none knows which
faults were played, but for power losses: some promises are weaker across one.
"""

from relaymesh.testing.simulation.checkers.admission import check_admission
from relaymesh.testing.simulation.checkers.deliveries import check_deliveries
from relaymesh.testing.simulation.checkers.fate import check_fate
from relaymesh.testing.simulation.checkers.settles import check_settles

__all__ = ["check_admission", "check_deliveries", "check_fate", "check_settles"]
