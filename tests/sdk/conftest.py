"""Every specification in this folder runs over both twins; coroutine tests run on a loop of their own."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.uniform import SteppedClock, Worlds


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture(params=["mesh", "async"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["synced", "memory"])
def worlds(request: pytest.FixtureRequest, kind: Any, tmp_path: Path) -> Worlds:
    """For specifications that hold whatever the durability."""
    return Worlds(kind, request.param, tmp_path / "mesh", SteppedClock())


@pytest.fixture(params=["synced", "batched"])
def durable_worlds(request: pytest.FixtureRequest, kind: Any, tmp_path: Path) -> Worlds:
    """For those about what is on the disk."""
    return Worlds(kind, request.param, tmp_path / "mesh", SteppedClock())
