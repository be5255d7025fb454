"""Results as tables: plain text for a terminal, Markdown for docs/benchmarks-tasks.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.quantile import median, spread
from bench.report import (
    Report,
    Table,
    machine_line,
    markdown_tables,
    number,
    plain_tables,
    put_between,
    share,
)
from bench.tasks.plan import NEIGHBOUR_MS, OURS, PEERS, TARGETS

BEGIN = "<!-- tasks: begin, written by `python -m bench.tasks --write-docs` -->"
END = "<!-- tasks: end -->"
NAMES = OURS | PEERS


def steps_table(report: Report) -> Table:
    head = ["work", "system", "steps", "steps/s", "spread", "CPU µs a step"]
    head += [f"of {name}" for name in PEERS.values()]
    rows = []
    for kind, systems in report["steps"].items():
        for system in systems:
            runs = good(report, kind, system)
            if runs:
                rates = [run["rate"] for run in runs]
                cells = [number(runs[0]["steps"]), number(median(rates))]
                cells += [share(spread(rates)) if len(rates) > 1 else "–"]
                cells += [number(median([run["cpu_us"] for run in runs]))]
                cells += [_ratio_cell(report, kind, system, peer) for peer in PEERS]
                rows.append([kind, NAMES[system], *cells])
    return head, rows


def _ratio_cell(report: Report, kind: str, system: str, peer: str) -> str:
    found = ratios(report, kind, system, peer)
    return f"{number(median(found))}×" if found and system in OURS else "–"


def ratios(report: Report, kind: str, system: str, peer: str) -> list[float]:
    """Our rate over the peer's, within each round. A peer's only fan-out stands for its larger ones."""
    theirs_at = kind
    if kind.startswith("fan-out") and not report["steps"][kind].get(peer):
        theirs_at = next(each for each in report["steps"] if each.startswith("fan-out"))
    ours = report["steps"].get(kind, {}).get(system, [])
    theirs = report["steps"].get(theirs_at, {}).get(peer, [])
    pairs = zip(ours, theirs, strict=False)
    return [our["rate"] / their["rate"] for our, their in pairs if "rate" in our and "rate" in their]


def target_table(report: Report) -> Table:
    """Ratios of both embedded sessions to DBOS, and what is wanted."""
    head = ["work", "wanted of DBOS", "threads", "event loop", "verdict"]
    rows = []
    for kind in report["steps"]:
        wanted = next((times for work, times in TARGETS.items() if kind.startswith(work)), None)
        found = [ratios(report, kind, system, "dbos") for system in ("threads", "loop")]
        if wanted is not None and all(found):
            cells = [f"{number(median(each))}×" for each in found]
            met = [median(each) >= wanted for each in found]
            verdict = "met" if all(met) else "met by one" if any(met) else "**missed**"
            rows.append([kind, f"≥ {wanted}×", *cells, verdict])
    return head, rows


def neighbour_table(report: Report) -> Table:
    head = ["neighbour's messages", "messages", "p50 ms", "p99 ms", "max ms", "fan-out steps/s"]
    runs = [run for run in report.get("neighbour", []) if "error" not in run]
    rows = []
    for where, words in (("alone", "alone"), ("beside", "beside a fan-out of {}")):
        if runs:
            told = [run[where] for run in runs]
            figures = [number(median([each[name] for each in told])) for name in FIGURES]
            rate = number(median([run["rate"] for run in runs])) if where == "beside" else "–"
            rows.append([words.format(number(runs[0]["items"])), *figures, rate])
    return head, rows


FIGURES = ("messages", "p50_ms", "p99_ms", "max_ms")


def memory_table(report: Report) -> Table:
    head = ["waiting in memory", "how many", "MB in all", "bytes each"]
    rows = []
    for what, run in report.get("memory", {}).items():
        if "error" not in run:
            rows.append(
                [what, number(run["live"]), number(run["added_bytes"] / 1e6), number(run["bytes_each"])]
            )
    return head, rows


TABLES = (
    ("Steps a second, synced", steps_table),
    ("Beside DBOS: wanted and found", target_table),
    (f"An unrelated mailbox, a message every {NEIGHBOUR_MS:g} ms, from send to receive", neighbour_table),
    ("Memory of live tasks of one step", memory_table),
)


def good(report: Report, kind: str, system: str) -> list[dict[str, Any]]:
    return [run for run in report["steps"].get(kind, {}).get(system, []) if "error" not in run]


def failures(report: Report) -> list[str]:
    runs = [
        (f"{kind}, {NAMES[system]}", run)
        for kind, systems in report["steps"].items()
        for system, found in systems.items()
        for run in found
    ]
    runs += [("neighbour", run) for run in report.get("neighbour", [])]
    runs += [(f"memory of {what}", run) for what, run in report.get("memory", {}).items()]
    return [f"{what}: {run['error']}" for what, run in runs if "error" in run]


def settings_of(report: Report) -> list[str]:
    told = {
        NAMES[system]: run["settings"]
        for systems in report["steps"].values()
        for system, runs in systems.items()
        for run in runs
        if "settings" in run
    }
    return [f"{name}: {words}" for name, words in told.items()]


def _notes(report: Report) -> list[tuple[str, list[str]]]:
    left_out = [f"{name}: {why}" for name, why in report["missing"].items()]
    return [("How they are set", settings_of(report)), ("Left out", left_out), ("Failed", failures(report))]


def plain(report: Report) -> str:
    parts = [machine_line(report), *plain_tables(report, TABLES)]
    parts += ["\n".join([title, *lines]) for title, lines in _notes(report) if lines]
    return "\n\n".join(parts)


def markdown(report: Report) -> str:
    parts = [machine_line(report), *markdown_tables(report, TABLES)]
    for title, lines in _notes(report):
        if lines:
            parts.append(f"### {title}\n\n" + "\n".join(f"- {line}" for line in lines))
    return "\n\n".join(parts)


def write_docs(report: Report, document: Path) -> None:
    """Put the tables between their markers; everything else in the document stays."""
    put_between(document, BEGIN, END, markdown(report))
