"""Stored workflows over every session: put, look, run by name, remove; and every bad value refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from relaymesh import Conflict, InvalidPlan, MeshError, NotFound, Workflow
from tests.sdk.uniform import Uniform, Worlds


def release(agent: str = "a", **fields: Any) -> dict[str, Any]:
    return {
        "workflow": "release",
        "input": {"n": "integer"},
        "steps": {"one": {"agent": agent, "input": "${{ input.n }}"}},
        **fields,
    }


async def test_a_stored_workflow_runs_by_name(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a, b = await mesh.agent("a"), await mesh.agent("b")
        first = await mesh.put_workflow(release("a"))
        second = await mesh.put_workflow(release("b"))
        assert (first.name, first.version, second.version, second.versions) == ("release", "1", "2", 2)
        newest = Uniform(await mesh.submit("release", {"n": 7}))
        older = Uniform(await mesh.submit("release@1", {"n": 7}))
        assert newest.id != older.id
        for agent, task in ((b, newest), (a, older)):
            delivery = await agent.receive(timeout=5)
            assert delivery.content["input"] == 7
            await delivery.finish("done")
            assert await task.result(5) == "done"


async def test_the_same_run_is_the_same_task_however_it_is_named(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.agent("a")
        stored = await mesh.put_workflow(release(), "1.0")
        task = await mesh.submit("release", {"n": 1})
        again = await mesh.submit("release@1.0", {"n": 1})
        document = (await mesh.workflow("release")).document
        whole = await mesh.submit(document, {"n": 1})
        assert (task.duplicate, again.duplicate, whole.duplicate) == (False, True, True)
        assert task.id == again.id == whole.id
        await mesh.put_workflow(release(), "2.0")
        later = await mesh.submit("release", {"n": 1})
        assert (later.duplicate, later.id != task.id) == (False, True), "another version is another request"
        with pytest.raises(Conflict):
            await mesh.submit("release", {"n": 2}, key="k") and await mesh.submit(
                "release@1.0", {"n": 2}, key="k"
            )
        assert stored.versions == 1


async def test_a_put_changes_no_task_that_runs(worlds: Worlds) -> None:
    async with worlds() as mesh:
        a = await mesh.agent("a")
        await mesh.put_workflow(release("a"))
        task = Uniform(await mesh.submit("release", {"n": 1}))
        await mesh.put_workflow({"workflow": "release", "steps": {"other": {"agent": "nobody"}}})
        assert await mesh.remove_workflow("release") == 2
        await (await a.receive(timeout=5)).finish("mine")
        assert await task.result(5) == "mine"


async def test_what_is_shown_can_be_put_again(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.put_workflow(release(version="2.1"))
        shown = await mesh.workflow("release")
        assert shown.document == release(version="2.1")
        again = await mesh.put_workflow(shown.document)
        assert (again.version, again.duplicate, again.digest) == ("2.1", True, shown.digest)
        assert (await mesh.put_workflow(release(), "2.1")).duplicate
        assert shown.owner == "mesh"
        assert shown.size == len(b'{"workflow":"release","input":{"n":"integer"},"steps":') + len(
            b'{"one":{"agent":"a","input":"${{ input.n }}"}}}'
        )


async def test_a_version_stays_what_it_is(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.put_workflow(release(), "1")
        with pytest.raises(Conflict, match="version 1 of workflow 'release'"):
            await mesh.put_workflow(release("b"), "1")
        with pytest.raises(InvalidPlan, match="has version '3', not '4'"):
            await mesh.put_workflow(release(version="3"), "4")
        assert [each.version for each in await mesh.workflows("release")] == ["1"]


async def test_a_list_shows_the_last_versions_and_those_of_one(worlds: Worlds) -> None:
    async with worlds() as mesh:
        builder = Workflow("other")
        builder.step("one", agent="a")
        await mesh.put_workflow(builder)
        for agent in "abc":
            await mesh.put_workflow(release(agent))
        listed = [(each.name, each.version, each.versions) for each in await mesh.workflows()]
        assert listed == [("release", "3", 3), ("other", "1", 1)]
        assert [each.version for each in await mesh.workflows("release")] == ["3", "2", "1"]
        assert [each.version for each in await mesh.workflows("release", limit=2)] == ["3", "2"]
        assert (await mesh.workflows("release"))[0].document is None
        assert await mesh.workflows("nothing") == []
        assert await mesh.workflows(limit=0) == []


async def test_what_is_not_there_is_named_with_a_hint(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.put_workflow(release())
        calls: list[Callable[[], Any]] = [
            lambda: mesh.workflow("relase"),
            lambda: mesh.workflow("release@2"),
            lambda: mesh.workflow("release", "2"),
            lambda: mesh.submit("relase"),
            lambda: mesh.submit("release@2", {"n": 1}),
        ]
        for call in calls:
            with pytest.raises(NotFound, match=r"relase|version 2 of workflow 'release'") as missing:
                await call()
            assert "workflow list" in missing.value.hint
        assert await mesh.remove_workflow("relase") == 0


async def test_stored_workflows_survive_a_restart_and_a_checkpoint(durable_worlds: Worlds) -> None:
    async with durable_worlds() as mesh:
        await mesh.put_workflow(release("a"))
        await mesh.put_workflow(release("b"))
    async with durable_worlds() as mesh:
        await mesh.checkpoint()
        await mesh.put_workflow(release("c"))
        await mesh.remove_workflow("release", "2")
    async with durable_worlds() as mesh:
        assert [each.version for each in await mesh.workflows("release")] == ["3", "1"]
        assert (await mesh.workflow("release@1")).document == release("a", version="1")
        assert (await mesh.put_workflow(release("d"))).version == "4"


BAD_NAMES: list[Any] = [
    "",
    " ",
    "a b",
    "a/b",
    "@",
    "@1",
    "a@",
    "a@1@2",
    "a@ 1",
    "x" * 1000,
    "a\x00",
    "rocket \ud83d",
    b"a",
    7,
    1.5,
    math.nan,
    None,
    True,
    ["a"],
    object(),
]
BAD_VERSIONS: list[Any] = [
    *(" ", "1 ", "a/b", "@", "-1", "x" * 129, "\x00", "\ud83d"),
    *(b"1", 1, 1.0, math.nan, True),
]
BAD_DOCUMENTS: list[Any] = [
    None,
    "release",
    b"{}",
    7,
    [],
    {},
    {"workflow": "w"},
    {"workflow": "a b", "steps": {"one": {"agent": "a"}}},
    {"workflow": "a/b", "steps": {"one": {"agent": "a"}}},
    {"workflow": "w", "steps": {"one": {"agent": "a", "needs": ["two"]}}},
    {"workflow": "w", "steps": {"one": {"agent": "a", "input": 2**60}}},
    {"workflow": "w", "steps": {"one": {"agent": "a", "input": math.nan}}},
    {"workflow": "w", "steps": {"one": {"agent": "a", "input": "\ud83d"}}},
    {"workflow": "w", "version": 3, "steps": {"one": {"agent": "a"}}},
    {"workflow": "w", "version": "a b", "steps": {"one": {"agent": "a"}}},
    {"workflow": "w", "steps": {"one": {"agent": "a", "input": "x" * 1_100_000}}},
]


async def test_a_bad_name_is_refused(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.put_workflow(release())
        for name in BAD_NAMES:
            for call in (mesh.workflow, mesh.submit, mesh.remove_workflow):
                with pytest.raises(MeshError) as refused:
                    await call(name)
                assert refused.value.hint
            if name is not None:
                with pytest.raises(MeshError):
                    await mesh.workflows(name)
        assert len(await mesh.workflows()) == 1


async def test_a_bad_version_is_refused(worlds: Worlds) -> None:
    async with worlds() as mesh:
        await mesh.put_workflow(release())
        for version in BAD_VERSIONS:
            with pytest.raises(MeshError):
                await mesh.put_workflow(release("b"), version)
            for call in (mesh.workflow, mesh.remove_workflow):
                with pytest.raises(MeshError):
                    await call("release", version)
        with pytest.raises(MeshError, match="twice"):
            await mesh.workflow("release@1", "1")
        assert [each.version for each in await mesh.workflows("release")] == ["1"]


async def test_a_bad_document_is_refused_and_nothing_is_kept(worlds: Worlds) -> None:
    async with worlds() as mesh:
        for document in BAD_DOCUMENTS:
            with pytest.raises(MeshError):
                await mesh.put_workflow(document)
        assert await mesh.workflows() == []


async def test_other_bad_values_are_refused(worlds: Worlds) -> None:
    async with worlds() as mesh:
        for owner in ("", "a b", 7, b"a"):
            with pytest.raises(MeshError):
                await mesh.put_workflow(release(), owner=owner)
        for limit in (-1, 1.5, math.nan, "5", True, 2**64):
            with pytest.raises(MeshError):
                await mesh.workflows(limit=limit)
