"""The table of planted bugs, for a terminal and for docs/explanation/planted-bugs.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relaymesh.testing.planted.bug import Bug
from relaymesh.testing.planted.catching import Caught

__all__ = ["BEGIN", "END", "listing", "rows", "with_table"]

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
HEAD = ("bug", "stands for", "caught by", "seeds", "seconds")


def rows(caught: Sequence[Caught]) -> str:
    """One line a bug, in columns."""
    lines = [HEAD, *(_row(each) for each in caught)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _row(each: Caught) -> tuple[str, ...]:
    return each.bug.name, each.bug.like or "-", each.verdict, str(each.seeds), f"{each.seconds:.1f}"


def listing(bugs: Sequence[Bug]) -> str:
    """Names and what is broken."""
    width = max(len(bug.name) for bug in bugs)
    return "\n".join(f"{bug.name.ljust(width)}  {bug.layer}: {bug.broken}" for bug in bugs)


def with_table(page: Path, caught: Sequence[Caught]) -> str:
    """The page with a new table between its markers."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the table: it needs {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{_markdown(caught)}\n{END}{after}"


def _markdown(caught: Sequence[Caught]) -> str:
    lines = ["| layer | bug | what is broken | stands for | caught by | seeds |", "|---|---|---|---|---|---|"]
    for each in caught:
        bug = each.bug
        cells = (bug.layer, f"`{bug.name}`", bug.broken, bug.like, f"`{each.verdict}`", str(each.seeds))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
