"""What a reader should look at first: for some sections, the number of things that wait for a decision."""

from __future__ import annotations

from dataclasses import dataclass

from relaymesh.pipeline.report.published import Published

__all__ = ["Attention", "attention_of"]


@dataclass(frozen=True)
class Attention:
    """A number beside the name of a section, and what it counts."""

    number: int
    counts: str


_ASKED = {
    "failures": ("SELECT count(*) FROM contract_violations", "treated otherwise than the contract says"),
    "dead-letters": ("SELECT sum(pending) FROM dead_letters_daily", "dead letters wait for a decision"),
    "alerts": (
        "SELECT count(*) FROM alert_history WHERE evaluable AND severity = 'critical'",
        "times a critical rule held",
    ),
    "audit": ("SELECT count(*) FROM audit_summary WHERE NOT passed", "rules are broken"),
    "quality": ("SELECT count(*) FROM quarantine", "frames could not be read"),
}


def attention_of(published: Published, suggestions: int) -> dict[str, Attention]:
    """By section; a section where nothing waits is left out."""
    found = {"sizing": Attention(suggestions, "settings to think about")}
    for section, (sql, counts) in _ASKED.items():
        if published.has(*published.tables_in(sql)):
            [(number,)] = published.ask(sql, 1).rows
            found[section] = Attention(int(number or 0), counts)
    return {section: each for section, each in found.items() if each.number}
