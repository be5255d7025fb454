"""Which measurements make one run, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

APIS = ("mesh", "async")
DURABILITIES = ("synced", "batched")
BATCHES = (1, 100, 1000)
SIZES = (200, 2000)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One measurement. `key` names it in the results; it is run `repeats` times, between the others."""

    key: str
    measure: str
    params: dict[str, Any] = field(default_factory=dict)
    repeats: int = 1
    timeout_s: float = 120.0


def jobs(quick: bool) -> list[Job]:
    return [*_throughput(quick), *_latency(quick), *_rest(quick)]


def throughput_key(api: str, durability: str, batch: int, size: int) -> str:
    return f"throughput/{api}/{durability}/many({batch})/{size} B"


def _throughput(quick: bool) -> list[Job]:
    return [
        Job(
            key=throughput_key(api, durability, batch, size),
            measure="throughput",
            params={
                "api": api,
                "durability": durability,
                "batch": batch,
                "size": size,
                "seconds": 0.5 if quick else 2.5,
            },
            repeats=1 if quick else 3,
        )
        for size in (SIZES[:1] if quick else SIZES)
        for batch in BATCHES
        for durability in DURABILITIES
        for api in APIS
    ]


def _latency(quick: bool) -> list[Job]:
    return [
        Job(
            key=f"latency/{api}/{durability}",
            measure="latency",
            params={
                "api": api,
                "durability": durability,
                "seconds": 1.5 if quick else 5.0,
                "top_seconds": 0.5 if quick else 2.0,
            },
            repeats=1 if quick else 3,
        )
        for durability in DURABILITIES
        for api in APIS
    ]


def _rest(quick: bool) -> list[Job]:
    live = 20_000 if quick else 1_000_000
    settled = 20_000 if quick else 400_000
    opens = 1 if quick else 3
    return [
        Job(
            key="one_by_one",
            measure="one_by_one",
            params={"rounds": 2 if quick else 15, "slice_s": 0.15 if quick else 0.25},
            timeout_s=240,
        ),
        _recovery("recovery/live", what="live", count=live, repeat=opens),
        _recovery("recovery/live, checkpoint", what="live", count=live, checkpoint=True, repeat=opens),
        _recovery("recovery/live, killed", what="live", count=live, killed=True),
        _recovery("recovery/settled", what="settled", count=settled, repeat=opens),
        Job(key="memory/idle", measure="memory"),
        Job(key="memory/mailbox of 10,000", measure="memory", params={"pending": 10_000}),
        Job(key="memory/pending", measure="memory", params={"pending": live}, timeout_s=600),
        _growth("pending", [1_000, 20_000] if quick else [1_000, 10_000, 100_000, 1_000_000], quick),
        _growth("mailboxes", [1, 1_000] if quick else [1, 100, 10_000], quick),
        _growth("delayed", [1, 5_000] if quick else [1, 1_000, 100_000], quick),
        Job(key="journal_size", measure="journal_size", params={"messages": 2_000 if quick else 20_000}),
    ]


def _recovery(key: str, **params: Any) -> Job:
    return Job(key=key, measure="recovery", params=params, timeout_s=900)


def _growth(of: str, sizes: list[int], quick: bool) -> Job:
    params = {"of": of, "sizes": sizes, "batches": 60 if quick else 900}
    return Job(key=f"growth/{of}", measure="growth", params=params, repeats=1 if quick else 3, timeout_s=900)
