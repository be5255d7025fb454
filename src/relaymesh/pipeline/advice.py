"""From figures to a proposal: settings worth a change, each with its reason.

A proposal is a file for people. No program reads it back, and nothing here changes a setting: an operator who
agrees with a line makes the change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from relaymesh.kernel.contract import DEFAULT_CONTRACT, OTHER, rule_for
from relaymesh.modes import PRIVATE, Modes
from relaymesh.pipeline.shown import duration, exact, per_second, share, size
from relaymesh.pipeline.tables.durable import swap_file

__all__ = ["INPUTS", "Proposal", "Suggestion", "propose", "write_proposal"]

VERSION = 1
INPUTS = ("sizing", "split_advice", "contract_violations", "agents")
"""The tables a proposal is made from."""

ALERT_MISSING = "left_without_alert"
"""The violation that is never a reason for more retries."""

NOTE = "This is a proposal. Nothing in it has been applied, and nothing will be by itself."

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One setting of one mailbox. `current` is None where the tables do not know it."""

    mailbox: str
    setting: str
    current: object
    proposed: object
    reasoning: str
    table: str


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """All suggestions, by mailbox. `made_at` is the caller's clock: the same tables, the same proposal."""

    made_at: str
    suggestions: tuple[Suggestion, ...]

    def fields(self) -> dict[str, Any]:
        """For programs."""
        listed = [asdict(each) for each in self.suggestions]
        return {"version": VERSION, "made_at": self.made_at, "note": NOTE, "suggestions": listed}

    def json(self) -> str:
        """The same as text, ending in a newline."""
        return json.dumps(self.fields(), indent=2, ensure_ascii=False) + "\n"

    def text(self) -> str:
        """For people: a line per suggestion, and below it why."""
        lines = [f"Proposal of {self.made_at}", NOTE, ""]
        mailbox = None
        for each in self.suggestions:
            if each.mailbox != mailbox:
                mailbox = each.mailbox
                lines.append(f"{mailbox}")
            now = "" if each.current is None else f" (now {_shown(each.current)})"
            lines.append(f"  {each.setting} = {_shown(each.proposed)}{now}")
            lines.append(f"      because {each.reasoning}  [{each.table}]")
        if not self.suggestions:
            lines.append("Nothing to propose: the tables give no reason to change a setting.")
        return "\n".join(lines) + "\n"


def propose(tables: Mapping[str, Iterable[Row]], made_at: str) -> Proposal:
    """A proposal from the rows of the tables in `INPUTS`."""
    found = [
        *_from_sizing(tables["sizing"]),
        *_from_splits(tables["split_advice"]),
        *_from_contracts(tables["contract_violations"], _settings(tables["agents"])),
    ]
    ordered = sorted(found, key=lambda each: (each.mailbox, each.setting, each.table))
    return Proposal(made_at=made_at, suggestions=tuple(ordered))


def write_proposal(proposal: Proposal, directory: Path, modes: Modes = PRIVATE) -> tuple[Path, Path]:
    """`proposal.json` and `proposal.txt`, each replaced whole."""
    written = directory / "proposal.json", directory / "proposal.txt"
    for path, text in zip(written, (proposal.json(), proposal.text()), strict=True):
        swap_file(path, text.encode(), modes)
    return written


def _shown(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else exact(value)


def _filled(value: float) -> str:
    """In a formula: four digits, so that a reader who repeats the calculation gets the same result."""
    return exact(float(f"{value:.4g}"))


def _from_sizing(rows: Iterable[Row]) -> Iterator[Suggestion]:
    for row in rows:
        needed, holders = row["workers_required"], row["holders"]
        if needed is not None and needed > holders:
            yield Suggestion(
                mailbox=row["mailbox"], setting="workers", current=holders, proposed=needed, table="sizing",
                reasoning=(
                    f"W = ceil(λ_p95 / μ_p50) ="
                    f" ceil({_filled(row['lambda_p95'])} / {_filled(row['mu_worker_p50'])}):"
                    f" in a busy second {per_second(row['lambda_p95'])} come,"
                    f" and the median worker does {per_second(row['mu_worker_p50'])}{_queue(row)}"
                ),
            )  # fmt: skip
        burst = (
            f"(λ_peak - μ_peak) · T_burst = ({_filled(row['lambda_peak'])} - {_filled(row['mu_peak'])})"
            f" · {duration(row['burst_s'] * 1_000)} = {exact(row['buffer_messages'])} messages"
        )
        for setting, wanted in (("capacity", "buffer_messages"), ("capacity_bytes", "buffer_bytes")):
            if row[setting] is not None and row[wanted] > row[setting]:
                each = f" of {size(row['mean_bytes'])}" if setting == "capacity_bytes" else ""
                yield Suggestion(
                    mailbox=row["mailbox"], setting=setting, current=row[setting], proposed=row[wanted],
                    reasoning=f"a burst needs room for {burst}{each}", table="sizing",
                )  # fmt: skip


def _from_splits(rows: Iterable[Row]) -> Iterator[Suggestion]:
    for row in rows:
        if row["split"]:
            yield Suggestion(
                mailbox=row["mailbox"], setting="split", current=None, proposed="several mailboxes",
                table="split_advice",
                reasoning=f"{row['conditions']} of 3 conditions hold: {_conditions(row)}",
            )  # fmt: skip


def _conditions(row: Row) -> str:
    p99 = row["latency_p99_ms"]
    return (
        f"backlog above 60 % of capacity for {duration(row['backlog_minutes'] * 60_000)} (10 min count);"
        f" p99 {'unknown' if p99 is None else duration(p99)} (SLA {duration(row['sla_ms'])});"
        f" {share(row['traffic_share'])} of traffic"
    )


def _queue(row: Row) -> str:
    """What the observed queue adds to it; older tables lack that column."""
    if row.get("queue_peak") is None:
        return ""
    return (
        f"; up to {exact(row['queue_peak'])} were due at once, to be worked off in"
        f" {duration(row['drain_s'] * 1_000)}"
        " by no more workers than that"
    )


def _from_contracts(rows: Iterable[Row], settings: Mapping[tuple[int, str], Row]) -> Iterator[Suggestion]:
    """The contract's default row, for a mailbox that deviates from it without a setting of its own."""
    for row in rows:
        code = row["code"]
        chosen = settings.get((row["partition"], row["mailbox"]), {})
        if _is_chosen(chosen, code, row["violation"]):
            continue
        rule = rule_for(None, code)
        yield Suggestion(
            mailbox=row["mailbox"],
            setting=f"contract.{code}",
            current=None,
            proposed={"retries": rule.retries, "exit": rule.exit, "alert": rule.alert},
            reasoning=(
                f"{row['reasoning']} ({exact(row['messages'])} messages, {exact(row['attempts'])} attempts)"
            ),
            table="contract_violations",
        )


def _is_chosen(settings: Row, code: str, violation: str) -> bool:
    """Whether the mailbox's own setting explains what happened: a proposal would undo it."""
    contract = settings.get("contract") or {}
    known = code.lower()
    if code in contract or known in contract or (known not in DEFAULT_CONTRACT and OTHER in contract):
        return True
    return violation != ALERT_MISSING and settings.get("max_retries") is not None


def _settings(agents: Iterable[Row]) -> dict[tuple[int, str], Row]:
    """The last settings of each mailbox, from the journal."""
    return {
        (row["partition"], row["address"]): json.loads(row["settings"]) for row in agents if row["settings"]
    }
