"""The rounds of one run: all systems take their turn in each, so that a bad minute does not hit one alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import child
from bench.tasks.plan import MODULES, PEERS, Sizes

Say = Callable[[str], None]
Found = dict[str, Any]
TIMEOUT_S = 600.0


def missing() -> dict[str, str]:
    """Peers that are not installed, and what to do."""
    return {
        name: f"{name} is not installed: make bench installs it, or pip install {name}"
        for name in PEERS
        if importlib.util.find_spec(name) is None
    }


def steps(sizes: Sizes, kinds: list[str], systems: list[str], place: Path, say: Say) -> dict[str, Any]:
    """Results by kind of work and system, one for each round."""
    results: dict[str, dict[str, list[Found]]] = {}
    for turn in range(sizes.rounds):
        for name in kinds:
            kind = sizes.kinds[name]
            for system in systems:
                count = kind.theirs if system in PEERS else kind.ours
                if not count:
                    continue
                say(f"round {turn + 1} of {sizes.rounds}: {name}, {system}")
                found = child.run(MODULES[system], place, {"work": kind.work, "count": count}, TIMEOUT_S)
                _note(results.setdefault(name, {}).setdefault(system, []), found, say)
    return results


def neighbour(sizes: Sizes, place: Path, say: Say) -> list[Found]:
    found: list[Found] = []
    for turn in range(sizes.rounds):
        say(f"round {turn + 1} of {sizes.rounds}: a neighbour beside a fan-out of {sizes.items:,}")
        _note(found, child.run("tasks.neighbour", place, {"items": sizes.items}, TIMEOUT_S), say)
    return found


def memory(sizes: Sizes, place: Path, say: Say) -> dict[str, Found]:
    say(f"memory of {sizes.tasks:,} live tasks")
    found: dict[str, Found] = {}
    for what, messages in (("tasks", False), ("messages", True)):
        held: list[Found] = []
        params = {"tasks": sizes.tasks, "messages": messages}
        _note(held, child.run("tasks.live", place, params, TIMEOUT_S), say)
        found[what] = held[0]
    return found


def _note(results: list[Found], found: Found, say: Say) -> None:
    results.append(found)
    if "error" in found:
        say(found["error"].splitlines()[-1])
