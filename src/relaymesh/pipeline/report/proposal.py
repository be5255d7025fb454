"""The proposal that the published tables give reason for."""

from __future__ import annotations

from datetime import datetime

from relaymesh.pipeline.advice import INPUTS, Proposal, propose
from relaymesh.pipeline.report.published import Published

__all__ = ["proposal_of"]

ROWS_MAX = 100_000
"""Of each table: more mailboxes than a person will look at."""


def proposal_of(published: Published, made_at: datetime) -> Proposal:
    """An empty one where a table that it needs is not published."""
    there = published.has(*INPUTS)
    rows = {
        name: published.ask(f"SELECT * FROM {name} ORDER BY ALL", ROWS_MAX).records() if there else []
        for name in INPUTS
    }
    return propose(rows, made_at.isoformat(timespec="seconds"))
