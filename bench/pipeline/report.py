"""Results as tables: plain text for a terminal, Markdown for docs/benchmarks-pipeline.md."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.pipeline.engines import QUERIES
from bench.report import Report, Table, markdown_tables, number, plain_tables, put_between, told_of

BEGIN = "<!-- pipeline: begin, written by `python -m bench.pipeline --write-docs` -->"
END = "<!-- pipeline: end -->"
ENGINES = {"spark": "Spark", "duckdb": "DuckDB", "polars": "Polars"}


def where_and_when(report: Report) -> str:
    machine = report["machine"]
    where, packages = told_of(machine)
    return (
        f"{where}; Spark on {report['cores']} cores; load average at the start "
        f"{machine['load_average'] or 'unknown'}; a run of {report['took_s']:.0f} s. {packages}."
    )


def bronze_table(report: Report) -> Table:
    head = ["journal → bronze", "events", "wall s", "CPU s", "events/s", "events/s and core", "wanted"]
    rows = []
    for run in report["runs"]:
        for name, words in (("decode", "decode alone, no Spark"), ("cold", "cold"), ("warm", "warm")):
            if name in run:
                wanted = number(report["targets"]["events_per_cpu_s"]) if name != "decode" else "–"
                rows.append([words, *_spent(run[name], run["events"]), wanted])
    return head, rows


def _spent(found: dict[str, Any], events: int) -> list[str]:
    return [
        number(events),
        number(found["wall_s"]),
        number(found["cpu_s"]),
        number(found["events_per_s"]),
        number(found["events_per_cpu_s"]),
    ]


def report_table(report: Report) -> Table:
    head = ["bronze → report", "events", "wall s", "CPU s", "CPU µs an event", "wanted"]
    rows = []
    for run in report["runs"]:
        found = run["report"]
        wanted = f"{report['targets']['report_s']} s" if run["events"] < 2_100_000 else "–"
        each = found["cpu_s"] / run["events"] * 1e6
        cells = [number(run["events"]), number(found["wall_s"]), number(found["cpu_s"]), number(each)]
        rows.append(["`relaymesh report build`", *cells, wanted])
        idle = run.get("idle")  # results of before have none
        if idle:
            spent = [number(run["events"]), number(idle["wall_s"]), number(idle["cpu_s"])]
            rows.append(["`relaymesh pipeline run`, nothing new", *spent, "–", "2 s"])
    sample = report.get("sample")
    if sample:
        rows.append(
            [
                "`report build --sample`",
                "12 k",
                number(sample["wall_s"]),
                number(sample["cpu_s"]),
                "–",
                "60 s",
            ]
        )
    return head, rows


def growth_table(report: Report) -> Table:
    """Cost of an event on the larger journal over that on the smaller; 1 is linear, below it fixed costs."""
    head = ["growth", "from", "to", "CPU an event", "wall an event"]
    runs = sorted(report["runs"], key=lambda run: run["events"])
    rows = []
    for one, two in pairwise(runs):
        for name, words in (("cold", "journal → bronze"), ("report", "bronze → report")):
            ratios = [_ratio(one, two, name, figure) for figure in ("cpu_s", "wall_s")]
            rows.append([words, number(one["events"]), number(two["events"]), *ratios])
    return head, rows


def _ratio(one: dict[str, Any], two: dict[str, Any], name: str, figure: str) -> str:
    before, after = (run[name][figure] / run["events"] for run in (one, two))
    return f"{number(after / before)}×"


def engine_table(report: Report) -> Table:
    there = [name for name in ENGINES if any(name in _of(run, QUERIES[0]) for run in report["runs"])]
    head = ["gold table", "events", "rows", "same answer", *(f"{ENGINES[name]} wall s" for name in there)]
    head += [f"{ENGINES[name]} is faster" for name in there if name != "spark"]
    rows = []
    for run in report["runs"]:
        for query in QUERIES:
            found = _of(run, query)
            cells = [number(run["events"]), number(found["rows"]), "yes" if found["same"] else "**no**"]
            cells += [number(found[name]["wall_s"]) for name in there]
            cells += [
                f"{number(found['spark']['wall_s'] / found[name]['wall_s'])}×"
                for name in there
                if name != "spark"
            ]
            rows.append([query, *cells])
    return head, rows


def _of(run: dict[str, Any], query: str) -> dict[str, Any]:
    found: dict[str, Any] = run["engines"]["queries"][query]
    return found


TABLES = (
    ("Journal to bronze", bronze_table),
    ("Bronze to report", report_table),
    ("Growth", growth_table),
    ("The same gold tables in other engines", engine_table),
)


def left_out(report: Report) -> list[str]:
    missing = {name: why for run in report["runs"] for name, why in run["engines"]["missing"].items()}
    return [f"{name}: {why}" for name, why in missing.items()]


def plain(report: Report) -> str:
    parts = [where_and_when(report), *plain_tables(report, TABLES)]
    return "\n\n".join([*parts, *(f"left out: {line}" for line in left_out(report))])


def markdown(report: Report) -> str:
    parts = [where_and_when(report), *markdown_tables(report, TABLES)]
    return "\n\n".join([*parts, *(f"Left out: {line}." for line in left_out(report))])


def write_docs(report: Report, document: Path) -> None:
    """Put the tables between their markers; everything else in the document stays."""
    put_between(document, BEGIN, END, markdown(report))
