"""The garbage collector of a process that serves a node: full collections are rare, and visit few objects.

A full collection visits every container object while nothing else runs: with 10,000 mailboxes or 4,000
connections that takes 100 ms and more. With Python's defaults the objects of one client cause it again and
again. A node's state has no cycles; connections and tasks have, and these are collected. `THRESHOLDS`: as in
`gc.set_threshold`. A full collection comes after about a million more objects were made than freed, in place
of 70,000; until then the cycles of closed connections may take up to about 150 MB. The young are looked at
often, and so few at a time: some milliseconds for 25,000 of them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (5_000, 5, 40)


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Inside the block collections are rare; afterwards the settings are restored. Objects that existed
    before are not visited."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def leave_out_what_exists() -> None:
    """Loaded and restored objects usually stay, so collections do not visit them. Reference counting still
    frees them."""
    gc.freeze()
