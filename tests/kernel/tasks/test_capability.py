"""Steps for any agent that has a capability: who gets them, and what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.commands import DrainAgent, OpenMailbox, RegisterAgent, SetBreaker
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.tasks.commands import Advance, Move
from relaymesh.kernel.tasks.plan import StepPlan
from tests.kernel.tasks.office import Office, plan, step

A, B, C = "default/a", "default/b", "default/c"


def code(name: str = "only", *needs: int, **fields: Any) -> StepPlan:
    return step(name, *needs, mailbox="", capability="code", **fields)


def office(*agents: str, capability: str = "code") -> Office:
    made = Office()
    for agent in agents:
        made.do(RegisterAgent(agent, capabilities=("text", capability)))
    return made


def boxes(desk: Office) -> dict[str, int]:
    return {agent: len(desk.pending(agent)) for agent in (A, B, C) if agent in desk.kernel.state.mailboxes}


def blocked(desk: Office) -> str:
    return desk.kernel.state.board.tasks["t1"].blocked


def test_a_step_goes_to_an_agent_that_has_the_capability() -> None:
    desk = office(B)
    desk.do(RegisterAgent(A, capabilities=("text",)))
    desk.submit(plan(code()))
    assert boxes(desk) == {A: 0, B: 1}
    desk.finish(desk.take(mailbox=B)["only"])
    assert desk.end().status == "SUCCESS"
    assert desk.ended_step("only").agent == B


def test_the_agent_with_the_fewest_messages_is_chosen_and_of_equals_the_first_by_name() -> None:
    desk = office(C, B, A)
    desk.submit(plan(code()), "t1")
    desk.submit(plan(code()), "t2")
    assert boxes(desk) == {A: 1, B: 1, C: 0}
    desk.finish(desk.take(mailbox=A)["only"])
    desk.submit(plan(code()), "t3")
    assert boxes(desk) == {A: 1, B: 1, C: 0}


def test_a_fan_out_is_spread_over_all_agents_that_have_the_capability() -> None:
    desk = office(A, B, C)
    desk.items["each"] = [b"%d" % number for number in range(30)]
    desk.submit(plan(code("each", for_each="items")))
    assert boxes(desk) == {A: 10, B: 10, C: 10}


def test_without_such_an_agent_the_step_waits_and_the_task_says_why() -> None:
    desk = office(A, capability="other")
    desk.submit(plan(code()))
    why = "no agent with the capability 'code' can take a step now"
    assert (boxes(desk), blocked(desk)) == ({A: 0}, why)
    desk.do(RegisterAgent(B, capabilities=("code",)))
    desk.move_on("t1")
    assert boxes(desk) == {A: 0, B: 1}
    assert blocked(desk) == ""


@pytest.mark.parametrize("why", ["draining", "at_most_once", "breaker", "full", "elsewhere", "away"])
def test_an_agent_that_cannot_take_a_step_is_not_chosen(why: str) -> None:
    desk = office(B)
    settings = MailboxSettings(
        capacity=1 if why == "full" else 10,
        delivery_semantics="at_most_once" if why == "at_most_once" else "at_least_once",
    )
    agent = "other/a" if why == "elsewhere" else A
    desk.do(OpenMailbox(agent, settings))
    desk.do(RegisterAgent(agent, capabilities=("code",)))
    if why == "draining":
        desk.do(DrainAgent(agent))
    if why == "breaker":
        desk.do(SetBreaker(agent, True))
    if why == "full":
        desk.send(agent, "mail")
        desk.send(B, "more", "mail")
    if why == "away":
        desk.advances = False
    before = len(desk.pending(agent)), len(desk.pending(B))
    desk.submit(plan(code()))
    if why == "away":
        desk.plainly(Advance("t1", [Move(0, "send", b"null")], ["m1"], [A]))
    assert (len(desk.pending(agent)), len(desk.pending(B)) - 1) == before


def test_a_retry_stays_with_the_agent_that_was_chosen() -> None:
    desk = office(A, B)
    desk.submit(plan(code()))
    desk.failed(desk.take(mailbox=A)["only"])
    desk.pass_time(60_000)
    assert boxes(desk) == {A: 1, B: 0}


def test_a_replay_reads_the_choice_and_makes_none() -> None:
    desk = office(A, B)
    desk.submit(plan(code("one"), code("two", 0)))
    desk.restart()
    assert boxes(desk) == {A: 1, B: 0}
    assert desk.live("one").mailbox == A


def test_a_step_has_an_agent_or_a_capability() -> None:
    desk = office(A)
    for bad in (step("s", capability="code"), step("s", mailbox="")):
        with pytest.raises(InvalidPlan, match="step 's': agent"):
            desk.submit(plan(bad))
