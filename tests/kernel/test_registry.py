"""Agents join: what they said is durable, and saying it again writes nothing."""

from __future__ import annotations

import msgspec
import pytest

from relaymesh.errors import NotFound
from relaymesh.kernel.commands import DrainAgent, RegisterAgent
from relaymesh.kernel.records import AgentRegistered, MailboxOpened
from relaymesh.kernel.registration import Registration
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.snapshot import Snapshot, restore
from tests.kernel.driver import MINUTE, Driver, ids, replay, through_a_checkpoint
from tests.kernel.durable import durable

CODER = "default/coder"


def join(mesh: Driver, **said: object) -> Registration:
    registration: Registration = mesh.do(RegisterAgent(CODER, **said)).result  # type: ignore[arg-type]
    return registration


def test_registering_opens_the_mailbox() -> None:
    mesh = Driver()
    registration = join(
        mesh, role="developer", capabilities=("python",), protocol="1.1.0", metadata=b'{"a":1}'
    )
    assert registration == Registration(CODER, mesh.now, "developer", ("python",), "1.1.0", b'{"a":1}')
    assert [type(record) for record in mesh.step.records] == [MailboxOpened, AgentRegistered]
    mesh.send(CODER, "m")
    assert ids(mesh.receive(CODER)) == ["m"]


def test_registering_leaves_an_open_mailbox_as_it_is() -> None:
    mesh = Driver()
    mesh.agent("coder", capacity=7)
    mesh.send(CODER, "m")
    join(mesh)
    assert mesh.box(CODER).settings.capacity == 7
    assert mesh.pending(CODER) == ["m"]


def test_saying_the_same_again_writes_nothing() -> None:
    mesh = Driver()
    first = join(mesh, role="tester")
    mesh.advance(MINUTE)
    assert join(mesh, role="tester") == first
    assert mesh.step.records == []


def test_what_is_said_later_counts() -> None:
    mesh = Driver()
    join(mesh, role="tester", capabilities=("a",))
    mesh.advance(MINUTE)
    again = join(mesh, role="reviewer")
    assert (again.role, again.capabilities, again.registered_at) == ("reviewer", (), mesh.now)


def test_a_drain_lasts_until_the_agent_registers_again() -> None:
    mesh = Driver()
    joined = join(mesh, role="tester").registered_at
    mesh.advance(MINUTE)
    drained = mesh.do(DrainAgent(CODER)).result
    assert (drained.draining, drained.role, drained.registered_at) == (True, "tester", joined)
    assert mesh.do(DrainAgent(CODER)).records == []
    assert join(mesh, role="tester").draining is False


def test_only_a_registered_agent_can_be_drained() -> None:
    mesh = Driver()
    mesh.agent("coder")
    with pytest.raises(NotFound, match="'coder' is not registered"):
        mesh.do(DrainAgent(CODER))


def test_registrations_survive_a_replay_and_a_checkpoint() -> None:
    mesh = Driver()
    join(mesh, role="tester", capabilities=("x", "y"), metadata=b'{"v":2}')
    mesh.do(RegisterAgent("team/other"))
    mesh.do(DrainAgent(CODER))
    state = mesh.kernel.state
    assert durable(replay(mesh.records)) == durable(state)
    restored = restore(through_a_checkpoint(Snapshot(state).pieces()))
    assert list(restored.agents.items()) == list(state.agents.items())
    assert restored.agents[CODER].draining


def test_a_new_mailbox_has_the_settings_that_come_with_it() -> None:
    mesh = Driver()
    mesh.do(RegisterAgent(CODER, settings=MailboxSettings(lease_ms=7_000)))
    assert mesh.box(CODER).settings.lease_ms == 7_000


@pytest.mark.parametrize(
    "said", [AgentRegistered(1, 9, CODER, settles=False), Registration(CODER, 9, settles=False)]
)
def test_what_an_older_version_wrote_is_of_an_agent_that_settles(
    said: AgentRegistered | Registration,
) -> None:
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(said))
    assert fields.pop() is False, "the youngest field is the last"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=type(said)).settles is True


def test_a_drain_keeps_whether_an_agent_settles() -> None:
    mesh = Driver()
    for settles in (True, False):
        mesh.do(RegisterAgent(CODER, settles=settles))
        assert mesh.do(DrainAgent(CODER)).result.settles is settles
