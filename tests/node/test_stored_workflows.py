"""Stored workflows of a node: what a put promised outlives a power loss, and a full disk refuses it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from relaymesh import DiskFloor
from relaymesh.testing import Keep, ManualClock, ManualMesh, MemoryDisk, PowerLost
from tests.node.crashing import SMALL
from tests.node.doubles import LIGHT, mesh_on


def document(number: int) -> dict[str, Any]:
    return {"workflow": "release", "steps": {"one": {"agent": "a", "input": number}}}


@pytest.mark.parametrize("seed", range(30))
def test_what_a_put_promised_is_there_wherever_the_power_goes(seed: int) -> None:
    rng = random.Random(seed)
    disk, clock = MemoryDisk(), ManualClock()
    promised: dict[str, Any] = {}
    removed: set[str] = set()
    number = 0
    for _ in range(6):
        with ManualMesh(disk=disk, clock=clock, settings=SMALL, seed=seed) as mesh:
            kept = {each.version for each in mesh.workflows("release")}
            assert promised.keys() <= kept
            assert not removed & kept
            for version, expected in promised.items():
                assert mesh.workflow("release", version).document == {**expected, "version": version}
        mesh = ManualMesh(disk=disk, clock=clock, settings=SMALL, seed=seed)
        disk.cut_power_after(rng.choice([2, 5, 10, 30]))
        try:
            for _ in range(40):
                number += 1
                promised[mesh.put_workflow(document(number), f"v{number}").version] = document(number)
                if rng.random() < 0.3:
                    doomed = rng.choice(list(promised))
                    del promised[doomed]  # gone or not, until the call returns
                    mesh.remove_workflow("release", doomed)
                    removed.add(doomed)
                if rng.random() < 0.2:
                    mesh.checkpoint()
        except PowerLost:
            pass
        disk = disk.crash(rng.choice(list(Keep)), seed=rng.getrandbits(32))


def test_at_the_disk_floor_a_put_is_refused_and_a_look_goes_on() -> None:
    disk = MemoryDisk()
    mesh = mesh_on(disk, journal=replace(LIGHT, room_refresh_bytes=0))
    mesh.put_workflow(document(1))
    disk.free = 5_000
    with pytest.raises(DiskFloor):
        mesh.put_workflow({"workflow": "large", "steps": {"one": {"agent": "a", "input": "x" * 500_000}}})
    assert [each.name for each in mesh.workflows()] == ["release"]
    disk.free = 10**9
    assert mesh.put_workflow(document(2)).version == "2"
    mesh.close()
