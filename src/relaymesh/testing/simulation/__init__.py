"""A deterministic simulation of a whole node, its disk, its clock and its clients.

    from relaymesh.testing.simulation import run_seed

    played = run_seed(7)
    assert played.violation is None

One thread and one seed decide everything: what clients do, when the disk writes and syncs, which fault
strikes where. The product above the ports (kernel, core, journal, recovery, checkpoint, archive, store)
is the one that is shipped. In data order:

    plan        the seed's choices: mailboxes, habits, faults
    world       clock, disk, and one node after another
    clients     who sends, receives and settles; they write the history
    faults      what breaks, and how it is healed
    history     what clients asked and were told
    reading     the journal read again, by its written format alone
    ledger      what the journal says became of every message
    checkers/   the invariants, apart from what is played
    scenario    one run from beginning to verdict
    report      many runs, for people and programs
"""

from relaymesh.testing.simulation.scenario import Played, run_seed, run_seeds
from relaymesh.testing.simulation.verdict import Violation

__all__ = ["Played", "Violation", "run_seed", "run_seeds"]
