"""Watches every change of an entry's state, and names the event that made it as `TRANSITIONS` does."""

from __future__ import annotations

from typing import Any

from relaymesh.kernel.entry import TRANSITIONS
from relaymesh.kernel.pending import LEASED, SETTLED, STATE_NAMES
from relaymesh.kernel.records import (
    Acked,
    AnyRecord,
    DeadLettered,
    DelayedForced,
    Dropped,
    Granted,
    Returned,
)
from relaymesh.kernel.state import State

Key = tuple[str, int]
Row = tuple[int, str, int]

RETURNS = {
    "nack": "retried",
    "expired": "lease_expired",
    "deferred": "deferred",
    "released": "released",
    "restart": "holder_lost",
    "abandoned": "abandoned",
}
DEATHS = {"ttl_expired": "expired", "mailbox_full": "overflowed"}

TABLE: set[Row] = {(before, event, after) for (before, event), to in TRANSITIONS.items() for after in to}


class Watch:
    """Stands in front of a live state's `apply`."""

    def __init__(self, state: State, rows: set[Row] | None = None) -> None:
        self.rows: set[Row] = set() if rows is None else rows
        self._state = state
        self._seen = self._states()
        self._apply = state.apply
        state.apply = self.apply  # type: ignore[method-assign]

    def _states(self) -> dict[Key, int]:
        return {
            (address, entry.sequence): entry.state
            for address, mailbox in self._state.mailboxes.items()
            for entry in mailbox.entries.values()
        }

    def look(self) -> None:
        """Whatever changed without a record fell due."""
        states = self._states()
        for key, before in self._seen.items():
            self._note(before, "due", states.get(key, SETTLED))
        self._seen = states

    def apply(self, record: AnyRecord) -> Any:
        self.look()
        detail = self._apply(record)
        states = self._states()
        for key, before in self._seen.items():
            after = states.get(key, SETTLED)
            if before != after:
                self._note(before, _event(record, before), after)
        self._seen = states
        return detail

    def _note(self, before: int, event: str, after: int) -> None:
        if before != after:
            row = (before, event, after)
            assert row in TABLE, f"{STATE_NAMES[before]} --{event}--> {STATE_NAMES[after]} is in no table"
            self.rows.add(row)


def _event(record: AnyRecord, before: int) -> str:
    match record:
        case Granted():
            return "granted"
        case Acked():
            return "acked" if before == LEASED else "already_done"
        case Dropped():
            return "dropped"
        case DeadLettered():
            return DEATHS.get(record.reason, "dead_lettered")
        case DelayedForced():
            return "forced"
        case Returned():
            return RETURNS[record.cause]
    return type(record).__name__
