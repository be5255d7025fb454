"""A step that breaks off in the middle: the state may be ahead of the journal, so nothing goes on."""

from __future__ import annotations

import pytest

from relaymesh.errors import Closed
from relaymesh.kernel.commands import Nack, Receive, Stop, Tick
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.request import Command
from relaymesh.kernel.waiter import Waiter
from relaymesh.wire.records import ENCODERS
from tests.kernel.driver import Driver, replay
from tests.kernel.durable import durable


def test_after_an_interrupt_in_the_middle_of_a_step_the_kernel_refuses_every_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    whole = durable(mesh.kernel.state)
    apply = mesh.kernel.state.apply

    def interrupted(record: AnyRecord) -> None:
        apply(record)
        raise KeyboardInterrupt

    monkeypatch.setattr(mesh.kernel.state, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mesh.receive(box)
    with pytest.raises(Closed, match="in the middle of a step"):
        mesh.do(Tick())
    assert durable(replay(mesh.records)) == whole, "the journal has everything up to the step before"
    mesh.restart()
    assert mesh.receive(box)[0].attempt == 1


def test_a_command_that_is_none_breaks_nothing() -> None:
    mesh = Driver()

    class Dance(Command[None]):
        pass

    with pytest.raises(KeyError):
        mesh.do(Dance())
    mesh.do(Tick())


def test_after_a_stop_nothing_is_delivered_any_more() -> None:
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    mesh.do(Stop())
    with pytest.raises(Closed, match="stopping"):
        mesh.do(Receive(box, Waiter("worker", 1)))


def test_a_record_that_cannot_be_written_changes_nothing_and_stops_the_kernel() -> None:
    """A defect, because commands are checked: here a decision that makes half an emoji of a reason."""
    mesh = Driver()
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    whole = durable(mesh.kernel.state)
    nack = Nack(lease.token)
    nack.reason = "\ud83d"
    with pytest.raises(Closed, match=f"Returned of {box} cannot be written") as caught:
        mesh.do(nack)
    assert "nothing of this call was written" in caught.value.hint
    assert durable(mesh.kernel.state) == whole
    with pytest.raises(Closed, match="cannot be written"):
        mesh.do(Tick())


def test_a_record_of_a_rare_kind_is_read_back_before_it_is_applied() -> None:
    mesh = Driver(encoders=ENCODERS)
    box = mesh.agent()
    mesh.send(box, "m")
    (lease,) = mesh.receive(box)
    nack = Nack(lease.token)
    nack.delay_ms = 0.5  # type: ignore[assignment]
    with pytest.raises(Closed, match="Returned of"):
        mesh.do(nack)
