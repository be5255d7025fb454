"""Planted bugs: the product broken on purpose, one function at a time, to test the tests.

    from relaymesh.testing.planted import bug_named
    from relaymesh.testing.planted.catching import catch

    assert catch(bug_named("receipt_before_sync")).caught

A bug is a small function that stands in for one of the product while it is planted; the product itself
knows nothing of it. By the layer they break:

    commit       what leaves before it is safe
    journal      frames, syncs, segments, checkpoints, the archive
    recovery     what a start gets wrong
    edge         which values pass
    admission    what is let in
    delivery     what is given out
    settling     what becomes of it
    timing       when
    store        what the tables say
    payloads     files of large content
    tasks        which step runs, whose result counts, when a task ends
    talk         waits, undoing, budgets, growth and mail of tasks
    schedules    which tick runs, and how often

`catching` looks for each with the simulator; `python -m relaymesh.testing.planted` does that for all.
"""

from __future__ import annotations

from relaymesh.testing.planted import (
    admission,
    commit,
    delivery,
    edge,
    journal,
    payloads,
    recovery,
    schedules,
    settling,
    store,
    talk,
    tasks,
    timing,
)
from relaymesh.testing.planted.bug import Bug, bugs_of

__all__ = ["BUGS", "Bug", "UnknownBug", "bug_named"]

LAYERS = (
    commit,
    journal,
    recovery,
    edge,
    admission,
    delivery,
    settling,
    timing,
    store,
    payloads,
    tasks,
    talk,
    schedules,
)

BUGS: tuple[Bug, ...] = tuple(bug for layer in LAYERS for bug in bugs_of(layer))


class UnknownBug(LookupError):
    """There is no planted bug of that name."""


def bug_named(name: str) -> Bug:
    for bug in BUGS:
        if bug.name == name:
            return bug
    raise UnknownBug(f"there is no planted bug {name!r}; `--list` shows all {len(BUGS)}")
