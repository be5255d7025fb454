"""What a run found, and how much it did."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import msgspec

REFUSED_SHARE_MIN = 1 / 3


class Surprise(msgspec.Struct):
    """Something that no caller may see. `line` reproduces the call."""

    name: str
    what: str
    where: str
    line: str
    detail: str = ""
    times: int = 1


class Report:
    """The counts of one run."""

    def __init__(self, over: str, seed: int, names: list[str]) -> None:
        self.over = over
        self.seed = seed
        self.calls: Counter[str] = Counter(dict.fromkeys(names, 0))
        self.hostile: Counter[str] = Counter()
        self.refused = 0
        self.accepted = 0
        self.bystander = 0
        self.reopened = 0
        self.surprised = 0
        self.surprises: dict[tuple[str, str, str], Surprise] = {}
        self._began = time.monotonic()

    @property
    def total(self) -> int:
        return self.refused + self.accepted

    def called(self, name: str, *, refused: bool, hostile: int = 0) -> None:
        self.calls[name] += 1
        self.hostile[name] += hostile
        if refused:
            self.refused += 1
        else:
            self.accepted += 1

    def surprise(self, name: str, what: str, where: str, line: str, detail: str = "") -> None:
        self.surprised += 1
        known = self.surprises.get((name.rpartition(".")[2], what, where))
        if known is None:
            surprise = Surprise(name, what, where, line[:1500], detail[:1500])
            self.surprises[(name.rpartition(".")[2], what, where)] = surprise
        else:
            known.times += 1

    @property
    def never_called(self) -> list[str]:
        return [name for name, count in self.calls.items() if not count]

    @property
    def failures(self) -> list[str]:
        """Why this run is red; empty when it is green."""
        found = [f"{each.name}: {each.what} at {each.where}: {each.line}" for each in self.surprises.values()]
        found += [f"{name} was never called" for name in self.never_called]
        if self.refused < self.total * REFUSED_SHARE_MIN:
            found.append(f"{self.refused} of {self.total} calls were refused: fewer than a third")
        return found

    def as_json(self) -> dict[str, Any]:
        seconds = time.monotonic() - self._began
        return {
            "over": self.over,
            "seed": self.seed,
            "ok": not self.failures,
            "calls": self.total,
            "refused": self.refused,
            "hostile_values": self.hostile.total(),
            "bystander": self.bystander,
            "reopened": self.reopened,
            "seconds": round(seconds, 1),
            "calls_per_s": round(self.total / max(seconds, 0.001)),
            "calls_per_name": dict(sorted(self.calls.items())),
            "never_called": self.never_called,
            "surprises": [msgspec.structs.asdict(each) for each in self.surprises.values()],
        }

    def text(self) -> str:
        said = self.as_json()
        lines = [f"{count:>9,}  {name}" for name, count in said["calls_per_name"].items()]
        lines.append(
            f"{self.over}, seed {self.seed}: {self.total:,} calls ({self.refused:,} refused),"
            f" {self.bystander:,} turns of a bystander, {self.reopened:,} restarts,"
            f" {said['seconds']} s, {said['calls_per_s']:,} calls/s"
        )
        for each in self.surprises.values():
            lines.append(f"SURPRISE {each.name}: {each.what} at {each.where} ({each.times} times)")
            lines.append(f"    {each.line}")
            if each.detail:
                lines.append(f"    {each.detail}")
        lines += [f"FAILED: {why}" for why in self.failures[len(self.surprises) :]]
        lines.append("ok" if not self.failures else f"{len(self.surprises)} kinds of surprise")
        return "\n".join(lines)
