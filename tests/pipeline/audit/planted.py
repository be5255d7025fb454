"""Violations planted into a sound journal: each changes its rows, and says which rule must notice.

A planter answers None where the journal offers it no place. Rows are never renumbered: an event is taken out
by making it one that nobody knows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import timedelta

from tests.pipeline.tables.journal import Row

Planter = Callable[[list[Row], random.Random], list[Row] | None]


def _unsaid(row: Row) -> Row:
    return row | {
        "operation": "OPERATION_200",
        "operation_code": 200,
        "mailbox": None,
        "message_sequence": None,
    }


def _changed(rows: list[Row], place: int, **columns: object) -> list[Row]:
    return [*rows[:place], rows[place] | columns, *rows[place + 1 :]]


def _one(rows: list[Row], chance: random.Random, *operations: str) -> int | None:
    places = [i for i, row in enumerate(rows) if row["operation"] in operations]
    return chance.choice(places) if places else None


def lost(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """A subscription ends and nothing says what became of what it held."""
    dropped = [
        i for i, row in enumerate(rows) if row["operation"] == "DROP" and row["code"] == "unsubscribed"
    ]
    if not dropped:
        return None
    place = chance.choice(dropped)
    return [*rows[:place], _unsaid(rows[place]), *rows[place + 1 :]]


def never_accepted(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """A message is delivered that nobody accepted."""
    named = {(row["mailbox"], row["message_sequence"]) for row in rows if row["operation"] == "GRANT"}
    places = [
        i for i, row in enumerate(rows)
        if row["operation"] == "APPEND" and (row["mailbox"], row["message_sequence"]) in named
    ]  # fmt: skip
    if not places:
        return None
    place = chance.choice(places)
    return [*rows[:place], _unsaid(rows[place]), *rows[place + 1 :]]


def early(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """A message is delivered before it is due."""
    place = _one(rows, chance, "GRANT")
    if place is None:
        return None
    grant = rows[place]
    for i in range(place - 1, -1, -1):
        row = rows[i]
        same = row["message_sequence"] == grant["message_sequence"]
        if same and row["operation"] in ("APPEND", "PUBLISH"):
            return _changed(rows, i, delay_ms=10_000_000)
        if same and row["mailbox"] == grant["mailbox"] and row["due_at"] is not None:
            return _changed(rows, i, due_at=grant["timestamp"] + timedelta(milliseconds=1))
        if same and row["operation"] in ("REDRIVE", "FORCE_DELIVER"):
            return None
    return None


def reordered(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """The first two deliveries of a lane change places, both having waited for the first."""
    keys = {
        (row["mailbox"], row["message_sequence"]): row["ordering_key"]
        for row in rows
        if row["operation"] == "APPEND" and row["ordering_key"] and row["delay_ms"] == 0
    }
    lanes: dict[tuple[str, str], list[int]] = {}
    seen: set[tuple[str, int]] = set()
    for i, row in enumerate(rows):
        message = (row["mailbox"], row["message_sequence"])
        if row["operation"] == "GRANT" and message in keys and message not in seen:
            seen.add(message)
            lanes.setdefault((row["mailbox"], keys[message]), []).append(i)
    pairs = [lane[:2] for lane in lanes.values() if len(lane) > 1]
    waited = [(a, b) for a, b in pairs if rows[b]["message_sequence"] < rows[a]["sequence"]]
    if not waited:
        return None
    first, second = chance.choice(waited)
    swapped = _changed(rows, first, message_sequence=rows[second]["message_sequence"])
    return _changed(swapped, second, message_sequence=rows[first]["message_sequence"])


def unbounded(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """A failure is tried again although the contract says never."""
    place = _one(rows, chance, "NACK", "LEASE_EXPIRED", "RECLAIM")
    return None if place is None else _changed(rows, place, code="fatal")


def miscounted(rows: list[Row], chance: random.Random) -> list[Row] | None:
    place = _one(rows, chance, "NACK", "LEASE_EXPIRED", "RECLAIM")
    return None if place is None else _changed(rows, place, attempt=rows[place]["attempt"] + 1)


def settled_twice(rows: list[Row], chance: random.Random) -> list[Row] | None:
    place = _one(rows, chance, "ACK", "DROP", "DEAD_LETTER")
    if place is None:
        return None
    end = rows[-1]
    again = rows[place] | {name: end[name] for name in ("timestamp", "event_date", "epoch")}
    return [
        *rows,
        again | {"operation": "ACK", "reason": None, "code": None, "sequence": end["sequence"] + 1},
    ]


def token_again(rows: list[Row], chance: random.Random) -> list[Row] | None:
    grants = [i for i, row in enumerate(rows) if row["operation"] == "GRANT"]
    if len(grants) < 2:
        return None
    place = chance.choice(grants[1:])
    return _changed(rows, place, lease_token=rows[grants[grants.index(place) - 1]]["lease_token"])


def missing_event(rows: list[Row], chance: random.Random) -> list[Row] | None:
    place = chance.randrange(1, len(rows) - 1)
    return [*rows[:place], *rows[place + 1 :]]


def twice_there(rows: list[Row], chance: random.Random) -> list[Row] | None:
    place = chance.randrange(len(rows))
    return [*rows[:place], rows[place], *rows[place:]]


def time_back(rows: list[Row], chance: random.Random) -> list[Row] | None:
    place = chance.randrange(1, len(rows))
    return _changed(rows, place, timestamp=rows[place - 1]["timestamp"] - timedelta(milliseconds=1))


def misrouted(rows: list[Row], chance: random.Random) -> list[Row] | None:
    place = _one(rows, chance, "PUBLISH")
    return None if place is None else _changed(rows, place, targets=rows[place]["targets"] + 1)


def done_untried(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """A message is acked although its delivery had been given back."""
    place = _one(rows, chance, "RELEASE", "DEFER")
    if place is None:
        return None
    return [*rows, _at_the_end(rows, rows[place], "ACK")]


def redriven_twice(rows: list[Row], chance: random.Random) -> list[Row] | None:
    place = _one(rows, chance, "REDRIVE")
    if place is None:
        return None
    number = rows[-1]["sequence"] + 1
    return [*rows, _at_the_end(rows, rows[place], "REDRIVE") | {"message_sequence": number}]


def stricter(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """Settings that were never in force."""
    place = _one(rows, chance, "OPEN_MAILBOX", "SUBSCRIBE")
    assert place is not None
    settings = json.loads(rows[place]["settings"]) | {"max_retries": 0}
    return _changed(rows, place, settings=json.dumps(settings))


def unsaid(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """Any event is taken out."""
    place = chance.randrange(len(rows))
    return [*rows[:place], _unsaid(rows[place]), *rows[place + 1 :]]


def other_message(rows: list[Row], chance: random.Random) -> list[Row] | None:
    """An event names another message of its mailbox."""
    named = [i for i, row in enumerate(rows) if row["message_sequence"] not in (None, row["sequence"])]
    if not named:
        return None
    place = chance.choice(named)
    others = [
        row["message_sequence"] for row in rows
        if row["mailbox"] == rows[place]["mailbox"] and row["message_sequence"] is not None
    ]  # fmt: skip
    return _changed(rows, place, message_sequence=chance.choice(others))


def _at_the_end(rows: list[Row], row: Row, operation: str) -> Row:
    end = rows[-1]
    here = {name: end[name] for name in ("timestamp", "event_date", "epoch")}
    return row | here | {"operation": operation, "sequence": end["sequence"] + 1}


CERTAIN: dict[Planter, str] = {
    lost: "lost",
    never_accepted: "unknown_message",
    early: "early",
    reordered: "lane_order",
    unbounded: "attempts_unbounded",
    miscounted: "attempt_count",
    settled_twice: "double_settle",
    token_again: "token_order",
    missing_event: "sequence_gap",
    twice_there: "sequence_duplicate",
    time_back: "time_order",
    misrouted: "route",
    redriven_twice: "redrive",
}
"""Planters whose violation must be found, and under which name."""

PLANTERS: tuple[Planter, ...] = (*CERTAIN, done_untried, stricter, unsaid, other_message)
