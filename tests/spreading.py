"""Which tests stay together when they are spread over processes, and which go where there is room.

Starting Java and warming it up costs as much as a dozen tests. So the tests of Spark are two groups, about
as long as each other, each in one process with one session: those that work in the session, and those that
start more Javas beside it, with a few to even them out. A file whose tests share something dear stays
whole. All other tests go one by one to whoever is free, after the groups.

This is `--dist=loadgroup` of pytest-xdist, whose marks pytest 9.2 does not hand on.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

IN_ONE_SESSION = (
    "tests/pipeline/audit/",
    "tests/pipeline/report/test_whole.py",
    "tests/pipeline/runs/",
    "tests/pipeline/tables/",
    "tests/pipeline/tasks/",
    "tests/pipeline/test_spark.py",
)
WITH_MORE_JAVAS = (
    "tests/pipeline/runs/test_kills.py",
    "tests/pipeline/source/test_spark_reads.py",
    "tests/pipeline/source/test_writer.py",
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_java.py",
)
WHOLE = (
    "tests/acceptance/test_acceptance.py",
    "tests/attacks/test_attacks.py",
    "tests/server/schemas/test_schemathesis.py",
    "tests/server/security/test_floods.py",
    "tests/server/security/test_hostile.py",
    "tests/server/security/test_live.py",
)


def group_of(nodeid: str) -> str | None:
    """The group of a test, if it has one."""
    if nodeid.startswith(WITH_MORE_JAVAS):
        return "with more Javas"
    if nodeid.startswith(IN_ONE_SESSION):
        return "in one session"
    return nodeid.partition("::")[0] if nodeid.startswith(WHOLE) else None


class Spreading(LoadScopeScheduling):  # type: ignore[misc]
    """A group is handed out whole, the one with most tests first; a test without one is its own."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid) or nodeid


def spread(config: Any, log: Any) -> Spreading | None:
    """The scheduler in place of `--dist=load`; another `--dist` is left alone."""
    return Spreading(config, log) if config.getvalue("dist") == "load" else None
