"""The node of a manual mesh: a clock that is moved by hand, a seed, and no threads."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

from relaymesh.errors import InvalidSettings
from relaymesh.journal import Disk
from relaymesh.kernel.bounds import TOKEN_MAX, shown, whole
from relaymesh.node.clock import Clock
from relaymesh.node.node import Node
from relaymesh.node.settings import Durability, MeshSettings, directory
from relaymesh.sdk.location import settings_of
from relaymesh.testing.clock import ManualClock


def manual_clock(clock: Any) -> ManualClock:
    """The clock that was given, if it can be moved; a new one if none was."""
    if clock is not None and not isinstance(clock, ManualClock):
        raise InvalidSettings(f"clock must be a ManualClock, not {shown(clock)}")
    return ManualClock() if clock is None else clock


def manual_node(
    path: str | os.PathLike[str] | None,
    disk: Disk | None,
    durability: Durability | None,
    settings: MeshSettings | None,
    seed: int,
    clock: Clock,
) -> Node:
    """In memory, unless a path, a disk or a durability asks for a journal."""
    if settings is None and durability is None and path is None and disk is None:
        durability = "memory"
    settings = settings_of(settings, durability)
    if path is None and disk is None and settings.durability != "memory":
        raise InvalidSettings(
            f"durability is {settings.durability!r}, and there is no journal to write to",
            hint="pass a path, or a disk such as MemoryDisk()",
        )
    if path is not None and settings.durability == "memory":
        raise InvalidSettings(
            f"a mesh in memory keeps nothing, and {shown(path)} is a place to keep it",
            hint="leave out the path, or durability='memory'",
        )
    if disk is not None and not callable(getattr(disk, "make_folder", None)):
        raise InvalidSettings(f"disk must be a disk such as MemoryDisk(), not {shown(disk)}")
    return Node(
        None if path is None else Path(directory(path, "path")),
        settings,
        clock=clock,
        rng=random.Random(whole(seed, "seed", -TOKEN_MAX, TOKEN_MAX)),
        disk=disk,
        background=False,
    )
