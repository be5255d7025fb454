"""The pytest plugin: fixtures `manual_mesh` and `async_manual_mesh`, there once RelayMesh is installed.

    def test_a_review_is_asked_for(manual_mesh):
        planner, reviewer = manual_mesh.agent("planner"), manual_mesh.agent("reviewer")
        ...

Each test gets a mesh of its own, in memory, closed at its end. What a handler raises fails the test
(`raise_errors=True`). `@pytest.mark.manual_mesh(…)` gives the mesh other arguments: a test of failures says
`@pytest.mark.manual_mesh(raise_errors=False)`.

The async fixture needs no plugin for async tests of a certain kind: any that runs them will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from relaymesh.testing import AsyncManualMesh, ManualMesh


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "manual_mesh(**arguments): arguments of the mesh of the fixtures of relaymesh"
    )


def _arguments(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker = request.node.get_closest_marker("manual_mesh")
    return {"raise_errors": True, **({} if marker is None else marker.kwargs)}


@pytest.fixture
def manual_mesh(request: pytest.FixtureRequest) -> Iterator[ManualMesh]:
    """A `relaymesh.testing.ManualMesh` of this test; what its handlers raise fails the test."""
    from relaymesh.testing import ManualMesh  # noqa: PLC0415 - the plugin is loaded into every pytest

    with ManualMesh(**_arguments(request)) as mesh:
        yield mesh


@pytest.fixture
def async_manual_mesh(request: pytest.FixtureRequest) -> Iterator[AsyncManualMesh]:
    """A `relaymesh.testing.AsyncManualMesh` of this test; what its handlers raise fails the test."""
    from relaymesh.testing import AsyncManualMesh  # noqa: PLC0415

    mesh = AsyncManualMesh(**_arguments(request))
    try:
        yield mesh
    finally:
        mesh.close_now()
