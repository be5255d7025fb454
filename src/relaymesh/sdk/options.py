"""Mailbox options as keyword arguments, turned into durable settings."""

from __future__ import annotations

from typing import Any, TypedDict

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.settings import MailboxSettings, Overflow, ScheduleName, Semantics
from relaymesh.sdk.endings import ContractSpec, FailureTable


class MailboxOptions(TypedDict, total=False):
    """What `mesh.agent`, `mesh.subscribe` and `mesh.on` take; see docs/reference/settings.md."""

    ordered: bool
    contract: ContractSpec | None
    capacity: int | None
    capacity_bytes: int | None
    max_retries: int | None
    delivery_semantics: Semantics
    overflow: Overflow
    schedule: ScheduleName
    lease_ms: int
    max_consecutive_high: int
    backoff_ms_base: int
    backoff_ms_cap: int
    backoff_jitter: float
    max_deferrals: int
    halt_on_dead_letter: bool
    breaker: bool
    breaker_retry_rate: float
    breaker_window_ms: int
    breaker_min_outcomes: int
    breaker_failures: int
    breaker_open_ms: int
    breaker_probes: int
    rate_per_s: float
    rate_burst: int
    dead_letters_max: int
    dead_letter_bytes_max: int


def mailbox_settings(
    options: Any, *, schedule: ScheduleName = "weighted"
) -> tuple[MailboxSettings, FailureTable]:
    """Settings for the journal, and the table that maps exceptions to their error codes."""
    given = {name: value for name, value in options.items() if value is not None}
    table = FailureTable(given.pop("contract", None))
    unknown = given.keys() - set(MailboxSettings.__struct_fields__)
    if unknown:
        raise InvalidSettings(
            f"a mailbox has no setting {min(unknown)!r}",
            hint=f"settings are {', '.join(MailboxSettings.__struct_fields__)}",
        )
    given.setdefault("schedule", schedule)
    return MailboxSettings(**given, contract=table.rules or None), table
