"""A bus of two agents, `coder` and `planner`, whose files are moved by the test itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateways.filebus.station import Station, station


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Station]:
    with station(tmp_path, "coder") as opened:
        opened.mesh.agent("planner")
        yield opened
