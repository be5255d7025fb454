"""Spark is set by how much there is to do, on this machine only."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from relaymesh.pipeline.runs.session import FEW, events_in, session_settings
from tests.pipeline.source.journals import traffic, write_frames


def test_few_events_are_not_compiled_for_and_many_get_memory() -> None:
    few, many = session_settings(FEW, None), session_settings(FEW + 1, "local[2]")
    assert few["spark.sql.codegen.wholeStage"] == "false"
    assert "TieredStopAtLevel=1" in few["spark.driver.extraJavaOptions"]
    assert "spark.sql.codegen.wholeStage" not in many
    assert 1 <= int(many["spark.driver.memory"].removesuffix("g")) <= 8


def test_a_cluster_keeps_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert session_settings(1, "spark://host:7077") == {}
    assert session_settings(10**9, "yarn") == {}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert session_settings(1, None) == {}


def test_events_are_counted_over_all_directories(tmp_path: Path) -> None:
    for name, frames in (("one", 2), ("two", 3)):
        write_frames(tmp_path / name, traffic(frames, per_frame=3))
    counted = events_in([tmp_path / "one", tmp_path / "two"])
    assert 45 <= counted <= 47
