"""Hostile calls hurt only their caller: short runs over every way in. `make proof` has the long ones."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.hostile import embedded, over_filebus, over_http, over_websocket
from tests.hostile.report import Report


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What these runs provoke is logged by the dozen."""
    logger = logging.getLogger("relaymesh")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("run", "calls"),
    [
        pytest.param(embedded.run, 4_000, id="embedded"),
        pytest.param(over_http.run, 800, id="http"),
        pytest.param(over_websocket.run_json, 800, id="websocket-json"),
        pytest.param(over_websocket.run_msgpack, 800, id="websocket-msgpack"),
        pytest.param(over_filebus.run, 500, id="filebus"),
    ],
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
def test_a_hostile_call_hurts_only_its_caller(run: Callable[[int, int], Report], calls: int) -> None:
    report = run(calls, 1)
    assert not report.failures, "\n".join(report.failures[:20])
    assert report.bystander >= calls / 12
    assert report.reopened >= 1


def test_a_public_name_that_is_never_called_fails_a_run() -> None:
    report = Report("embedded", 1, ["Agent.send", "Agent.new"])
    report.called("Agent.send", refused=True)
    assert report.failures == ["Agent.new was never called"]


def test_a_run_that_refuses_little_fails() -> None:
    report = Report("embedded", 1, [])
    for refused in (True, False, False, False):
        report.called("Agent.send", refused=refused)
    assert report.failures == ["1 of 4 calls were refused: fewer than a third"]
