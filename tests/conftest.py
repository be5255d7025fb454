"""For all tests: how `pytest -n` spreads them."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.spreading import spread

    return spread(config, log)
