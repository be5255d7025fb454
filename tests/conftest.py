"""For all tests: how `pytest -n` spreads them, and what signals do to the processes they start."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.spreading import spread

    return spread(config, log)


STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@pytest.fixture
def default_signals() -> Iterator[None]:
    """For tests that send signals: a shell may have started this run with some of them ignored.

    A process that a test starts inherits what is ignored, and not the handlers that are set here.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    for number in STOP_SIGNALS:
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def ignored_hangup(default_signals: None) -> Iterator[None]:
    """As `nohup` starts a program: SIGHUP is ignored here, and in every process a test starts."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)
