"""The figures to reach, and what the measurements say to each.

A figure reads its value out of the results; where the run was smaller than the figure speaks of (a
`--quick` pass with 20,000 messages where it says a million) the verdict is `scaled`, not `met`. A value that
cannot be true is `noise`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.plan import APIS, throughput_key
from bench.quantile import median, spread

Results = dict[str, list[dict[str, Any]]]

NAMES = {"mesh": "Mesh", "async": "AsyncMesh"}
MILLION = 1_000_000
ONE_SYNC_EACH = 1.1
"""Each call waits for one sync at least, so it cannot come more often than syncs do; a tenth for noise."""
RIVALS = ("huey (SQLite)", "persist-queue (ack)", "litequeue")
WHOLE = {"growth/pending": 1_000_000, "growth/mailboxes": 10_000, "growth/delayed": 100_000}


@dataclass(frozen=True)
class Figure:
    """One row: a target, and where its value stands in the results of one job."""

    what: str
    sense: str
    target: float | Callable[[dict[str, Any]], float]
    unit: str
    job: str
    value: Callable[[dict[str, Any]], float | None]
    whole: Callable[[dict[str, Any]], bool] = lambda _: True
    ceiling: float | None = None
    """What no machine can exceed: a value beyond it says that the measurement went wrong."""


def figures() -> list[Figure]:
    return [
        *_throughput(),
        *_latency(),
        *_one_by_one(),
        *_recovery(),
        *_memory(),
        *_growth(),
        Figure(
            "journal bytes of a 200 B message, whole life, many(100)",
            "<=",
            300,
            "B",
            "journal_size",
            lambda r: r["bytes_per_message"]["100"],
        ),
    ]


def _throughput() -> list[Figure]:
    rows = []
    for api in APIS:
        for batch, target in ((100, 100_000), (1000, 150_000)):
            job = throughput_key(api, "synced", batch, 200)
            what = f"{NAMES[api]}, synced, send→deliver→ack, 200 B, many({batch})"
            rows.append(Figure(what, ">=", target, "messages/s", job, lambda r: r["rate"]))
        job = throughput_key(api, "synced", 100, 200)
        what = f"{NAMES[api]}, synced, 200 B, many(100): processor time a message"
        rows.append(Figure(what, "<=", 10, "µs", job, lambda r: r["cpu_us"]))
    return rows


def _latency() -> list[Figure]:
    rows = []
    for api in APIS:
        name = NAMES[api]
        rows += [
            Figure(
                f"{name}, batched: p99 send→receive at half of the top rate",
                "<",
                10,
                "ms",
                f"latency/{api}/batched",
                lambda r: r["p99_ms"],
            ),
            Figure(
                f"{name}, synced: the same; target 10 ms + the disk's sync p99",
                "<",
                lambda r: 10 + r["disk"]["sync_ms_p99"],
                "ms",
                f"latency/{api}/synced",
                lambda r: r["p99_ms"],
            ),
        ]
    return rows


def _one_by_one() -> list[Figure]:
    job = "one_by_one"
    rows = [
        Figure(
            "one by one: sends, of the disk's sync rate",
            ">=",
            0.6,
            "×",
            job,
            _of_disk("send"),
            ceiling=ONE_SYNC_EACH,
        ),
        Figure(
            "one by one: round trips (producer and consumer), of the disk's sync rate",
            ">=",
            0.4,
            "×",
            job,
            _of_disk("lock_step"),
            ceiling=ONE_SYNC_EACH,
        ),
    ]
    for rival in RIVALS:
        what = f"one by one: round trips, against {rival}"
        rows.append(Figure(what, ">=", 3, "×", job, _against(rival)))
    return rows


def _of_disk(name: str) -> Callable[[dict[str, Any]], float | None]:
    return lambda result: result["of_disk"][name]


def _against(rival: str) -> Callable[[dict[str, Any]], float | None]:
    def ratio(result: dict[str, Any]) -> float | None:
        """Both as shares of the disk's rate at their own moment, which leaves the disk's moods out."""
        theirs = result["of_disk"].get(f"{rival}: round trip")
        ours: float = result["of_disk"]["same_thread"]
        return ours / theirs if theirs else None

    return ratio


def _recovery() -> list[Figure]:
    def whole(result: dict[str, Any]) -> bool:
        return bool(result["count"] >= MILLION)

    def back_in(result: dict[str, Any]) -> float:
        took: float = result["open_s"]
        return took

    rows = [
        Figure(
            "recovery: live messages, no checkpoint",
            ">=",
            250_000,
            "messages/s",
            "recovery/live",
            lambda r: r["messages_per_s"],
            whole,
        ),
        Figure(
            "recovery: records of settled messages",
            ">=",
            1_000_000,
            "records/s",
            "recovery/settled",
            lambda r: r["records_per_s"],
            lambda r: r["count"] >= 300_000,
        ),
    ]
    for job, how in (
        ("recovery/live", "no checkpoint"),
        ("recovery/live, checkpoint", "from a checkpoint"),
        ("recovery/live, killed", "killed, store behind"),
    ):
        rows.append(Figure(f"recovery: 1,000,000 live messages, {how}", "<", 10, "s", job, back_in, whole))
    return rows


def _memory() -> list[Figure]:
    def whole(result: dict[str, Any]) -> bool:
        return bool(result.get("pending", 0) >= MILLION or result.get("count", 0) >= MILLION)

    load = throughput_key("async", "synced", 100, 200)
    return [
        Figure("memory: idle mesh", "<", 100, "MB", "memory/idle", lambda r: r["idle_bytes"] / 1e6),
        Figure(
            "memory: 1,000,000 pending 200 B messages, in the process that sent them",
            "<",
            1000,
            "MB",
            "memory/pending",
            lambda r: r["rss_bytes"] / 1e6,
            whole,
        ),
        *(
            Figure(
                f"memory: the same after a restart, {how}",
                "<",
                1000,
                "MB",
                job,
                lambda r: r["rss_bytes"] / 1e6,
                whole,
            )
            for job, how in (
                ("recovery/live", "no checkpoint"),
                ("recovery/live, checkpoint", "from a checkpoint"),
            )
        ),
        Figure(
            "memory: a mailbox of 10,000",
            "<=",
            10,
            "MB",
            "memory/mailbox of 10,000",
            lambda r: r["added_bytes"] / 1e6,
        ),
        Figure("memory: peak under load, many(100)", "<", 300, "MB", load, lambda r: r["peak_bytes"] / 1e6),
    ]


def _growth() -> list[Figure]:
    rows = []
    for of, first in (("pending", "1,000"), ("mailboxes", "1"), ("delayed", "1")):
        job = f"growth/{of}"
        rows.append(
            Figure(
                f"growth: time a message, {first} to {WHOLE[job]:,} {of}",
                "<=",
                1.5,
                "×",
                job,
                lambda r: r["ratio"],
                lambda r, job=job: r["steps"][-1]["size"] >= WHOLE[job],  # type: ignore[misc]
            )
        )
    return rows


def judge(results: Results) -> list[dict[str, Any]]:
    """Every figure whose job has run, with its verdict: met, missed, scaled, noise or failed."""
    return [_judged(figure, results[figure.job]) for figure in figures() if figure.job in results]


def _judged(figure: Figure, repetitions: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"what": figure.what, "unit": figure.unit, "job": figure.job, "sense": figure.sense}
    good = [each for each in repetitions if "error" not in each]
    values = [value for each in good if (value := figure.value(each)) is not None]
    if not values:
        reason = next((each["error"] for each in repetitions if "error" in each), "not measured")
        return {**row, "target": None, "measured": None, "verdict": "failed", "reason": reason}
    wanted = figure.target
    target = median([wanted(each) for each in good]) if callable(wanted) else wanted
    measured = median(values)
    row |= {"target": target, "measured": measured, "ratio": measured / target}
    row |= {"spread": spread(values), "repetitions": len(values)}
    if not all(figure.whole(each) for each in good):
        return {**row, "verdict": "scaled"}
    if figure.ceiling is not None and measured > figure.ceiling:
        return {**row, "verdict": "noise"}
    met = {">=": measured >= target, "<=": measured <= target, "<": measured < target}[figure.sense]
    return {**row, "verdict": "met" if met else "missed"}
