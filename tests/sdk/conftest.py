"""Every specification in this folder runs over both twins, embedded and remote.

`worlds` and `durable_worlds` are the whole contract. What is inherently embedded asks for
`embedded_worlds` and says why. Coroutine tests run on a loop of their own.
"""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

from relaymesh.node.settings import Durability
from tests.sdk.uniform import EMBEDDED, REMOTE, SteppedClock, Worlds


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


def _kinds(*durabilities: Durability) -> list[Any]:
    """Both twins in every durability; a remote one, whose node has the durability, in the first."""
    embedded = [(kind, durability) for durability in durabilities for kind in EMBEDDED]
    return [
        pytest.param(each, id="-".join(each))
        for each in (*embedded, *((kind, durabilities[0]) for kind in REMOTE))
    ]


@pytest.fixture(params=EMBEDDED)
def kind(request: pytest.FixtureRequest) -> Any:
    """For what is about a twin alone."""
    return request.param


@pytest.fixture(params=_kinds("synced", "memory"))
def worlds(request: pytest.FixtureRequest, tmp_path: Path) -> Worlds:
    """For specifications that hold whatever the durability, and wherever the node is."""
    kind, durability = request.param
    return Worlds(kind, durability, tmp_path / "mesh", SteppedClock())


@pytest.fixture(params=["synced", "memory"])
def embedded_worlds(request: pytest.FixtureRequest, kind: Any, tmp_path: Path) -> Worlds:
    """For those that only a node in this process can fulfil."""
    return Worlds(kind, request.param, tmp_path / "mesh", SteppedClock())


@pytest.fixture(params=_kinds("synced", "batched"))
def durable_worlds(request: pytest.FixtureRequest, tmp_path: Path) -> Worlds:
    """For those about what is on the disk."""
    kind, durability = request.param
    return Worlds(kind, durability, tmp_path / "mesh", SteppedClock())
