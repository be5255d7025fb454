"""The order of steps: each step after its needs, otherwise in the order of the document."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def in_order(needs: Sequence[Sequence[int]]) -> list[int]:
    """The numbers of the steps, each after its needs. Steps in a cycle, or after one, are left out."""
    missing = [len(each) for each in needs]
    needed_by: list[list[int]] = [[] for _ in needs]
    for step, numbers in enumerate(needs):
        for number in numbers:
            needed_by[number].append(step)
    ready = [step for step, count in enumerate(missing) if count == 0]
    ordered = []
    while ready:
        step = heapq.heappop(ready)
        ordered.append(step)
        for later in needed_by[step]:
            missing[later] -= 1
            if missing[later] == 0:
                heapq.heappush(ready, later)
    return ordered


def cycle(needs: Sequence[Sequence[int]]) -> list[int]:
    """One cycle of steps that need each other: it starts and ends with the same step."""
    done = set(in_order(needs))
    step = next(each for each in range(len(needs)) if each not in done)
    path: list[int] = []
    seen: dict[int, int] = {}
    while step not in seen:
        seen[step] = len(path)
        path.append(step)
        step = next(each for each in needs[step] if each not in done)
    found = path[seen[step] :]
    found.reverse()  # from a step to those that wait for it
    first = found.index(min(found))
    return [*found[first:], *found[:first], found[first]]
