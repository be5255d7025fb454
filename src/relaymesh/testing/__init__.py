"""Deterministic stand-ins for clock and disk, and a mesh to test your agents with.

A test of an hour of retries takes milliseconds, and always goes the same way:

    from relaymesh import Retry
    from relaymesh.testing import ManualMesh

    def test_a_busy_model_is_asked_again_later():
        with ManualMesh() as mesh:
            planner, coder = mesh.agent("planner"), mesh.agent("coder")
            asked_at = []

            @coder.handle
            def work(delivery):
                asked_at.append(mesh.now)
                if delivery.attempt < 3:
                    raise Retry("the model is busy", after=600)

            planner.send("coder", {"do": "bump version"})
            mesh.advance(3600)

            assert [(at - asked_at[0]).seconds for at in asked_at] == [0, 600, 1200]
            assert mesh.stats().mailboxes["default/coder"].acked == 1

`AsyncManualMesh` is its awaited twin. With `raise_errors=True` a handler that raises, a failing `assert` for
instance, fails the call in which it ran. pytest finds two fixtures once RelayMesh is installed: `manual_mesh`
and `async_manual_mesh`, which have it set; `@pytest.mark.manual_mesh(raise_errors=False)` gives a test other
arguments.

`ManualMesh` promises what `Mesh` promises. With a `MemoryDisk` it also survives, or does not survive,
whatever you do to the disk: `MemoryDisk.crash` is a power loss, a `Fault` fails a call.
"""

from relaymesh.testing.async_mesh import AsyncManualMesh
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.disk import Fault, Keep, MemoryDisk, PowerLost
from relaymesh.testing.mesh import ManualMesh

__all__ = ["AsyncManualMesh", "Fault", "Keep", "ManualClock", "ManualMesh", "MemoryDisk", "PowerLost"]
