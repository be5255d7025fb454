"""The checker: reads the ledgers and says what was broken. Shares no code with the product."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Books:
    """What all runs have written down, in order."""

    intents: dict[str, tuple[str, int]] = field(default_factory=dict)
    receipts: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    deliveries: list[tuple[int, str, str, int, tuple[int, ...]]] = field(default_factory=list)
    """Run, id, key, number, token."""

    def read(self, run: int, lines: Iterable[str]) -> None:
        for line in lines:
            if not line.endswith("\n"):
                break  # the kill met the last write
            kind, id, *rest = line.split()
            if kind == "I":
                self.intents[id] = (rest[0], int(rest[1]))
            elif kind == "R":
                self.receipts[id] = int(rest[0])
            elif kind == "X":
                self.refused.add(id)
            elif kind == "L":
                self.dead.add(id)
            else:
                token = tuple(int(part) for part in rest[2].split("."))
                self.deliveries.append((run, id, rest[0], int(rest[1]), token))


def read_books(folder: Path) -> Books:
    books = Books()
    for file in sorted(folder.iterdir()):
        with file.open(encoding="ascii", newline="\n") as lines:
            books.read(int(file.name), lines)
    return books


def broken(books: Books) -> list[str]:
    """Every promise that was not kept, in words."""
    delivered = {id for _, id, _, _, _ in books.deliveries}
    return [
        *_each("receipted and lost", books.receipts.keys() - delivered - books.dead),
        *_each("delivered, never sent", delivered - books.intents.keys()),
        *_each("delivered, though refused", delivered & books.refused),
        *_each("dead, though nothing fails for good", books.dead),
        *_each("sequence given twice", _twice(books.receipts.values())),
        *_each("token given twice", _twice(token for *_, token in books.deliveries)),
        *_order(books),
    ]


def _each(what: str, names: Iterable[object]) -> list[str]:
    return [f"{what}: {name}" for name in sorted(names, key=str)]


def _twice(values: Iterable[object]) -> set[object]:
    seen: set[object] = set()
    return {value for value in values if value in seen or seen.add(value)}  # type: ignore[func-returns-value]


def _order(books: Books) -> list[str]:
    """In a lane first deliveries follow sending; in one run all do; tokens never go back."""
    found: list[str] = []
    first: dict[str, int] = {}
    in_run: dict[tuple[int, str], int] = {}
    tokens: dict[str, tuple[int, ...]] = {}
    seen: set[str] = set()
    for run, id, key, number, token in books.deliveries:
        if id not in seen:
            seen.add(id)
            if number < first.get(key, -1):
                found.append(f"first delivery out of order: {id} after {first[key]}")
            first[key] = number
        if number < in_run.get((run, key), -1):
            found.append(f"out of order in run {run}: {id} after {in_run[run, key]}")
        in_run[run, key] = number
        if token <= tokens.get(key, ()):
            found.append(f"token went back: {token} of {id} after {tokens[key]}")
        tokens[key] = token
        if books.intents.get(id, (key, number)) != (key, number):
            found.append(f"content changed: {id}")
    return found
