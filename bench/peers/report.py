"""Results as tables: plain text for a terminal, Markdown for docs/benchmarks-peers.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.peers.plan import BATCHES, LATENCY_BATCH, OURS, rate_key
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

BEGIN = "<!-- peers: begin, written by `python -m bench.peers --write-docs` -->"
END = "<!-- peers: end -->"
OUR_PROMISE = (
    "the receipt comes after the message is written to the journal and fdatasynced, once for all that waits. "
    "An ack is written at once and synced within 100 ms: a lost one is a redelivery."
)


def rate_table(report: Report) -> Table:
    head = [
        "calls",
        "system",
        "messages/s",
        "spread",
        "client CPU µs",
        "server CPU µs",
        "together",
        *(f"{name} is" for name in OURS.values()),
        "senders + receivers",
    ]
    rows = []
    for kind in map(rate_key, BATCHES):
        for system in report["results"]:
            runs = good(report, system, kind)
            if runs:
                rows.append([kind, name_of(report, system), *_rate_cells(report, system, kind, runs)])
    return head, rows


def _rate_cells(report: Report, system: str, kind: str, runs: list[dict[str, Any]]) -> list[str]:
    ours = system in OURS
    rates = [run["rate"] for run in runs]
    return [
        number(median(rates)),
        share(spread(rates)) if len(rates) > 1 else "–",
        number(median([run["cpu_us" if ours else "client_cpu_us"] for run in runs])),
        "in it" if ours else number(median([run["server_cpu_us"] for run in runs])),
        number(median([run["cpu_us"] for run in runs])),
        *(_ratio(report, api, system, kind) for api in OURS),
        f"{runs[0]['senders']} + {runs[0]['receivers']}, {runs[0].get('layout', 'one process')}",
    ]


def _ratio(report: Report, api: str, system: str, kind: str) -> str:
    """Our rate over the peer's, within each round, the median of the rounds."""
    if system in OURS:
        return ""
    found = ratios(report, api, system, kind)
    return f"{number(median(found))}×" if found else "–"


def ratios(report: Report, api: str, system: str, kind: str) -> list[float]:
    ours = report["results"].get(api, {}).get(kind, [])
    theirs = report["results"].get(system, {}).get(kind, [])
    pairs = zip(ours, theirs, strict=False)
    return [our["rate"] / their["rate"] for our, their in pairs if "rate" in our and "rate" in their]


def latency_table(report: Report) -> Table:
    head = ["system", "messages/s", "p50 ms", "p99 ms", "max ms"]
    rows = []
    for system in report["results"]:
        runs = good(report, system, "latency")
        if runs:
            figures = ("rate_wanted", "p50_ms", "p99_ms", "max_ms")
            cells = [number(median([run[figure] for run in runs])) for figure in figures]
            rows.append([name_of(report, system), *cells])
    return head, rows


def promise_table(report: Report) -> Table:
    head = ["system", "acknowledged means", "survives a power loss", "client, and how it batches"]
    rows = [["RelayMesh, synced", OUR_PROMISE, "yes", "send_many, receive_many, ack_many"]]
    for peer in report["peers"].values():
        name = f"{peer['name']} {peer['version']}"
        synced = "yes" if peer["synced"] else "no"
        rows.append([name, peer["promise"], synced, f"{peer['client']}: {peer['batching']}"])
    return head, rows


def layout_table(report: Report) -> Table:
    head = ["system", "calls", "one process, messages/s", "two processes, messages/s"]
    rows = []
    for peer, kinds in report["trials"].items():
        for kind, rates in kinds.items():
            rows.append([name_of(report, peer), kind, *(number(rate) for rate in rates.values())])
    return head, rows


TABLES = (
    ("Top rate: send → deliver → ack, 200 B", rate_table),
    (f"Latency from send to receive at half of its own top rate, {rate_key(LATENCY_BATCH)}", latency_table),
    ("What acknowledged means", promise_table),
    ("Trials: producer and consumer in one process or in two", layout_table),
)


def good(report: Report, system: str, kind: str) -> list[dict[str, Any]]:
    return [run for run in report["results"].get(system, {}).get(kind, []) if "error" not in run]


def name_of(report: Report, system: str) -> str:
    name: str = OURS.get(system) or report["peers"][system]["name"]
    return name


def failures(report: Report) -> list[str]:
    return [
        f"{name_of(report, system)}, {kind}: {run['error']}"
        for system, kinds in report["results"].items()
        for kind, runs in kinds.items()
        for run in runs
        if "error" in run
    ]


def left_out(report: Report) -> list[str]:
    return [f"{name}: {reason}" for name, reason in report["missing"].items()]


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


def _notes(report: Report) -> list[tuple[str, list[str]]]:
    return [("Left out", left_out(report)), ("Failed", failures(report))]


def write_docs(report: Report, document: Path) -> None:
    """Put the tables between their markers; everything else in the document stays."""
    put_between(document, BEGIN, END, markdown(report))
