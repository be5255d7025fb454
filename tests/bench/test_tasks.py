"""The bench of tasks, in small: every kind of work gives its result, and the tables tell what was found."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from bench import child
from bench.tasks import report
from bench.tasks.plan import MODULES, OURS, PEERS, QUICK, WHOLE, chosen

WORKS = ("chain", "small", "together", "fan-out")
TIMEOUT_S = 60.0


def measured(module: str, place: Path, **params: Any) -> dict[str, Any]:
    found = child.run(module, place, params, TIMEOUT_S)
    assert "error" not in found, found["error"]
    return found


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("system", OURS)
def test_each_kind_of_work_runs_on_each_session(system: str, work: str, tmp_path: Path) -> None:
    found = measured(MODULES[system], tmp_path / "run", work=work, count=5)
    assert found["steps"] == 5
    assert found["rate"] > 0
    assert found["cpu_us"] > 0


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("peer", PEERS)
def test_each_kind_of_work_runs_on_each_peer(peer: str, work: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} is not installed: make bench installs it")
    assert measured(MODULES[peer], tmp_path / "run", work=work, count=5)["steps"] == 5


def test_a_neighbour_is_measured_alone_and_beside_a_fan_out(tmp_path: Path) -> None:
    found = measured("tasks.neighbour", tmp_path / "run", items=100, quiet_s=0.2)
    assert found["alone"]["messages"] > 0
    assert found["items"] == 100


@pytest.mark.parametrize("messages", [False, True])
def test_the_memory_of_what_waits_is_measured(messages: bool, tmp_path: Path) -> None:
    assert measured("tasks.live", tmp_path / "run", tasks=100, messages=messages)["live"] == 100


def test_what_is_wanted_is_chosen_by_the_beginning_of_its_name() -> None:
    assert chosen(["fan"], list(WHOLE.kinds)) == ["fan-out 1,000", "fan-out 10,000"]
    assert chosen([], list(QUICK.kinds)) == list(QUICK.kinds)


def told(rate: float) -> dict[str, Any]:
    return {"steps": 10, "rate": rate, "cpu_us": 1.0, "wall_s": 1.0}


def test_ratios_are_taken_within_a_round() -> None:
    steps = {
        "fan-out 1,000": {"threads": [told(100), told(900)], "dbos": [told(1), told(3)]},
        "fan-out 10,000": {"threads": [told(200)]},
    }
    found = {"steps": steps, "missing": {}}
    assert report.ratios(found, "fan-out 1,000", "threads", "dbos") == [100, 300]
    assert report.ratios(found, "fan-out 10,000", "threads", "dbos") == [200]
    steps["fan-out 1,000"]["loop"] = [{"error": "broken"}]
    assert report.failures(found) == ["fan-out 1,000, RelayMesh, event loop: broken"]
