"""`kill -9`, again and again, of processes that send and handle at full speed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from relaymesh.testing.torture.torture import Settings, Torture, Verdict

KILLS = 50
SECONDS_MAX = 180.0


@pytest.mark.slow
def test_fifty_kills_lose_nothing_invent_nothing_and_keep_every_lane_in_order(tmp_path: Path) -> None:
    """Promises 1, 2, 3, 4, 5 and 8. RELAYMESH_SOAK_SEED repeats the plan of a run."""
    seed = int(os.environ.get("RELAYMESH_SOAK_SEED") or random.SystemRandom().randrange(10**9))
    print(f"RELAYMESH_SOAK_SEED={seed}")

    def enough(verdict: Verdict, seconds: float) -> None:
        if verdict.kills >= KILLS:
            soak.interrupt()

    settings = Settings(
        data=tmp_path / "mesh", ledgers=tmp_path / "ledgers", seconds=SECONDS_MAX, seed=seed, tag="soak"
    )
    soak = Torture(settings, enough)
    verdict = soak.run()
    assert verdict.failures == [], f"seed {seed}"
    assert verdict.found.words == [], f"seed {seed}"
    assert verdict.kills >= KILLS, f"seed {seed}: only {verdict.kills} kills in {SECONDS_MAX:g} s"
    assert verdict.found.messages > 1000, "it did work meanwhile"
    print(f"{verdict.found.messages} receipts, {verdict.found.deliveries} deliveries")
