"""Results as tables: plain text for a terminal, Markdown for docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.quantile import median, spread

Report = dict[str, Any]
Table = tuple[list[str], list[list[str]]]
Tables = Sequence[tuple[str, Callable[[Report], Table]]]
"""Titles, and what makes the table below each."""

BEGIN, END = "<!-- {}: begin, written by `python -m bench --write-docs` -->", "<!-- {}: end -->"
SIGNS = {">=": "≥", "<=": "≤", "<": "<"}
PROFILE_LINES = 8


# -- numbers ----------------------------------------------------------------------------------


def number(value: float | None) -> str:
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def share(value: float | None) -> str:
    return "–" if value is None else f"±{value * 50:.0f} %"


# -- tables -----------------------------------------------------------------------------------


def figure_table(report: Report) -> Table:
    rows = [
        [
            row["what"],
            f"{SIGNS[row['sense']]} {number(row['target'])} {row['unit']}",
            f"{number(row['measured'])} {row['unit']}",
            share(row.get("spread") if row.get("repetitions", 1) > 1 else None),
            number(row.get("ratio")),
            row["verdict"],
        ]
        for row in report["figures"]
    ]
    return ["figure", "target", "measured", "spread", "measured / target", "verdict"], rows


def throughput_table(report: Report) -> Table:
    rows = []
    for key, repetitions in report["results"].items():
        good = [each for each in repetitions if "error" not in each]
        if not key.startswith("throughput/") or not good:
            continue
        first = good[0]
        rates = [each["rate"] for each in good]
        rows.append(
            [
                first["loop"] or "threads",
                first["durability"],
                f"many({first['batch']})",
                f"{first['size']} B",
                f"{first['senders']} + {first['receivers']}",
                number(median(rates)),
                share(spread(rates) if len(rates) > 1 else None),
                number(median([each["cpu_us"] for each in good])),
                number(median([each["rate_with_store"] for each in good])),
            ]
        )
    head = [
        "runs on",
        "durability",
        "calls",
        "content",
        "senders + receivers",
        "messages/s",
        "spread",
        "CPU µs",
        "messages/s, store caught up",
    ]
    return head, rows


def latency_table(report: Report) -> Table:
    rows = []
    for key, repetitions in report["results"].items():
        good = [each for each in repetitions if "error" not in each]
        if not key.startswith("latency/") or not good:
            continue
        first = good[0]
        rows.append(
            [
                first["loop"] or "threads",
                first["durability"],
                number(median([each["rate"] for each in good])),
                number(median([each["p50_ms"] for each in good])),
                number(median([each["p99_ms"] for each in good])),
                number(median([each["max_ms"] for each in good])),
                number(median([each["disk"]["sync_ms_p50"] for each in good])),
                number(median([each["disk"]["sync_ms_p99"] for each in good])),
            ]
        )
    head = [
        "runs on", "durability", "messages/s", "p50 ms", "p99 ms", "max ms", "disk p50 ms", "disk p99 ms",
    ]  # fmt: skip
    return head, rows


OURS = {
    "send": "RelayMesh: send alone",
    "lock_step": "RelayMesh: round trip, two threads in lock step",
    "flowing": "RelayMesh: round trip, two threads flowing",
    "same_thread": "RelayMesh: send, receive, ack in one thread",
    "durable_ack": "RelayMesh: the same, every ack synced",
}


def peer_table(report: Report) -> Table:
    """One by one: everybody's rate, of the disk's, and how many times as fast RelayMesh is."""
    found = [each for each in report["results"].get("one_by_one", []) if "error" not in each]
    head = ["one by one", "a second", "of the disk", "RelayMesh is", "how it syncs"]
    if not found:
        return head, []
    result = found[0]
    rates, of_disk = result["rates"], result["of_disk"]
    rows = [["the disk: pwrite + fdatasync", number(rates["disk"]), "1", "", "fdatasync"]]
    synced = "fdatasync before the receipt; an ack within 100 ms"
    for key, what in OURS.items():
        note = "fdatasync before receipt and ack" if key == "durable_ack" else synced
        rows.append([what, number(rates[key]), number(of_disk.get(key)), "", note])
    for peer in result["peers"]:
        for call, ours in (("put", "send"), ("round trip", "same_thread")):
            key = f"{peer['name']}: {call}"
            times = f"{number(of_disk[ours] / of_disk[key])}×"
            rows.append([key, number(rates[key]), number(of_disk[key]), times, peer["synced"]])
    return head, rows


def growth_table(report: Report) -> Table:
    rows = []
    for key, repetitions in report["results"].items():
        for result in repetitions[:1]:
            if not key.startswith("growth/") or "error" in result:
                continue
            first = result["steps"][0]["cpu_us"]
            rows += [
                [
                    result["of"],
                    f"{step['size']:,}",
                    number(step["cpu_us"]),
                    number(step["cpu_us"] / first),
                    number(step["wall_us_p50"]),
                ]
                for step in result["steps"]
            ]
    return ["growth", "how many", "CPU µs a message", "ratio", "wall µs a message, p50"], rows


TABLES = (
    ("Figures", figure_table),
    ("Top rate: send → deliver → ack", throughput_table),
    ("Latency at half of the top rate", latency_table),
    ("One by one, beside other queues", peer_table),
    ("Growth", growth_table),
)


# -- text -------------------------------------------------------------------------------------


def plain(report: Report) -> str:
    parts = [machine_line(report), *plain_tables(report, TABLES)]
    failed = [
        f"{key}: {each['error']}" for key, all in report["results"].items() for each in all if "error" in each
    ]
    if failed:
        parts.append("Failed\n" + "\n".join(failed))
    return "\n\n".join(parts)


def plain_tables(report: Report, tables: Tables) -> list[str]:
    """Each table that has a row, below its title."""
    made = [(title, *make(report)) for title, make in tables]
    return [f"{title}\n{columns([head, *rows])}" for title, head, rows in made if rows]


def markdown_tables(report: Report, tables: Tables) -> list[str]:
    made = [(title, *make(report)) for title, make in tables]
    return [f"### {title}\n\n{markdown_table(head, rows)}" for title, head, rows in made if rows]


def columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(f"  {line}" for line in lines)


def told_of(machine: dict[str, Any]) -> tuple[str, str]:
    """Day and machine, and the packages on it, in words."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    return (
        f"{machine['at'][:10]}: {machine['cores']} cores of {machine['processor'] or 'an unknown kind'}, "
        f"{machine['memory_bytes'] / 1e9:.0f} GB, {machine['system']}, {machine['file_system']}, "
        f"{machine['python']}"
    ), packages


def machine_line(report: Report) -> str:
    machine = report["machine"]
    sync = machine.get("sync", {})
    where, packages = told_of(machine)
    return (
        f"{where}; the disk alone syncs {number(sync.get('rate'))} times a second "
        f"(p50 {number(sync.get('sync_ms_p50'))} ms, p99 {number(sync.get('sync_ms_p99'))} ms); "
        f"load average at the start {machine['load_average'] or 'unknown'}; "
        f"{'a quick pass' if report['quick'] else 'a whole run'} of {report['took_s']:.0f} s. {packages}."
    )


# -- Markdown ---------------------------------------------------------------------------------


def markdown(report: Report) -> str:
    return "\n\n".join([machine_line(report), *markdown_tables(report, TABLES)])


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [_line(head), _line(["---"] * len(head)), *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def missed(report: Report) -> str:
    """For each figure that was missed: by how much, and the profile of its job."""
    rows = [row for row in report["figures"] if row["verdict"] in ("missed", "failed")]
    if not rows:
        return "None was missed in this run."
    parts = []
    for job in dict.fromkeys(row["job"] for row in rows):
        lines = [
            f"- {row['what']}: {number(row['measured'])} {row['unit']} where "
            f"{SIGNS[row['sense']]} {number(row['target'])} was wanted."
            for row in rows
            if row["job"] == job
        ]
        parts.append(f"### {job}\n\n" + "\n".join(lines) + _bounds(report, job))
    return "\n\n".join(parts)


def _bounds(report: Report, job: str) -> str:
    text = ""
    good = [each for each in report["results"].get(job, []) if "error" not in each]
    if good and job.startswith("throughput/"):
        busy = median([each["cores_busy"] for each in good])
        threads: dict[str, float] = good[0]["threads"]
        named = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in threads.items() if seconds >= 0.01)
        whole = good[0]["cpu_us"] * good[0]["messages"] / 1e6
        text += (
            f"\n\n{busy:.2f} of {report['machine']['cores']} cores were busy. Processor time by thread, of"
            f" {whole:.2f} s: {named}."
        )
    if good and job == "one_by_one":
        rates = good[0]["rates"]
        rows = [
            [what, f"{1e6 / rates[key]:.0f}", f"{1e6 / rates[key] - 1e6 / rates['disk']:.0f}"]
            for key, what in OURS.items()
            if key in good[0]["of_disk"]
        ]
        text += "\n\n" + markdown_table(["what", "µs each", "of it not the disk's one sync"], rows)
    profile = report.get("profiles", {}).get(job)
    if profile:
        rows = [
            [f"`{line['function']}`", f"{line['calls']:,}", f"{line['share'] * 100:.1f} %"]
            for line in profile[:PROFILE_LINES]
        ]
        text += "\n\n" + markdown_table(["function", "calls", "own time"], rows)
    return text


def write_docs(report: Report, document: Path) -> None:
    """Put the tables between their markers; everything else in the document stays."""
    for name, body in (("figures", markdown(report)), ("missed", missed(report))):
        put_between(document, BEGIN.format(name), END.format(name), body)


def put_between(document: Path, begin: str, end: str, body: str) -> None:
    """What stands between the two markers gives way to `body`."""
    page = document.read_text(encoding="utf-8")
    if begin not in page or end not in page:
        raise SystemExit(f"{document} has no place marked by {begin}")
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    document.write_text(pattern.sub(lambda _: f"{begin}\n\n{body}\n\n{end}", page), encoding="utf-8")
