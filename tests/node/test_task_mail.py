"""Mail about tasks is sent, late if need be, and what becomes ready meanwhile goes on."""

from __future__ import annotations

import random
from typing import Any

import pytest

from relaymesh.errors import DiskFloor
from relaymesh.kernel.commands import Ack, OpenMailbox
from relaymesh.kernel.query import OwedNotices
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.tasks.commands import Finish, SetBudget, Submit, Usage
from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitPlan
from relaymesh.kernel.waiter import Waiter
from relaymesh.node.core import Receiver
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.disk import MemoryDisk

WORKER, INBOX = "default/worker", "default/inbox"


def node_on(disk: MemoryDisk, clock: ManualClock, **settings: Any) -> Node:
    node = Node(
        None, MeshSettings(**settings), clock=clock, rng=random.Random(1), disk=disk, background=False
    )
    node.core.execute(OpenMailbox(WORKER, MailboxSettings()))
    node.core.execute(OpenMailbox(INBOX, MailboxSettings(capacity=1)))
    return node


def submit(node: Node, task: str, *steps: StepPlan, reply_to: str = "") -> None:
    plan = Plan(name="w", steps=steps)
    node.tasks.submit(Submit(task, plan, b"null", task, b"r", "default/me", reply_to=reply_to))


def take(node: Node, mailbox: str) -> int:
    """The token of the next message."""
    receiver = Receiver(Waiter("me", 1))
    node.core.receive(mailbox, receiver, wait=False)
    node.core.sync()
    assert receiver.deliveries is not None
    (row,) = receiver.deliveries.rows()
    return row.token


def finish_next(node: Node) -> None:
    """The worker takes a step and ends it."""
    node.core.execute(Finish(take(node, WORKER), b"1"))


def waiting(node: Node, mailbox: str) -> int:
    return len(list(node.core.kernel.state.mailboxes[mailbox].entries))


def test_a_step_that_becomes_ready_while_mail_is_sent_is_sent_too() -> None:
    clock = ManualClock()
    node = node_on(MemoryDisk(seed=1), clock)
    wait = StepPlan(name="nap", mailbox="", input=b"1", wait=WaitPlan(kind="wait"))
    submit(node, "t1", wait, StepPlan(name="after", mailbox=WORKER, needs=(0,)))
    submit(node, "t2", StepPlan(name="a", mailbox=WORKER), reply_to=INBOX)
    mail = node.advancing.mail
    new_ids = mail._new_ids

    def slowly(count: int) -> list[str]:
        clock.advance(2)
        return new_ids(count)

    mail._new_ids = slowly
    finish_next(node)
    assert waiting(node, INBOX) == 1
    assert waiting(node, WORKER) == 1, "the nap was over when the mail was sent"


def test_a_start_sends_the_mail_of_a_task_that_ended_before() -> None:
    clock, disk = ManualClock(), MemoryDisk(seed=1)
    node = node_on(disk, clock)
    for task in ("t1", "t2"):
        submit(node, task, StepPlan(name="a", mailbox=WORKER), reply_to=INBOX)
        finish_next(node)
    node.checkpoint()
    node = node_on(disk.kill(), clock)
    assert len(node.core.kernel.look(OwedNotices())) == 1, "the inbox has room for one"
    assert waiting(node, INBOX) == 1
    node.core.execute(Ack([take(node, INBOX)]))
    clock.advance(1)
    node.tend()
    assert node.core.kernel.look(OwedNotices()) == []
    assert waiting(node, INBOX) == 1


def test_mail_that_a_full_disk_refuses_fails_no_settle_and_is_sent_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    node = node_on(MemoryDisk(seed=1), clock, inline_bytes_max=10)
    submit(node, "t1", StepPlan(name="a", mailbox=WORKER), reply_to=INBOX)
    token = take(node, WORKER)

    def refuse(size: int) -> None:
        raise DiskFloor(f"no room for {size} bytes")

    with monkeypatch.context() as full:
        full.setattr(node.payloads, "_require_capacity", refuse)
        node.core.execute(Finish(token, b"1"))
        assert [owed.kind for owed in node.core.kernel.look(OwedNotices())] == ["result"]
    clock.advance(60)
    node.tend()
    assert waiting(node, INBOX) == 1


def test_a_message_that_was_taken_back_is_not_filed_twice() -> None:
    """A task that has used its budget is sent again as it was, also where its content is a file."""
    clock = ManualClock()
    node = node_on(MemoryDisk(seed=1), clock, inline_bytes_max=10)
    steps = [StepPlan(name=name, mailbox=WORKER) for name in "ab"]
    node.tasks.submit(
        Submit("t1", Plan(name="w", steps=tuple(steps), cost_micros=5), b"null", "k", b"r", "default/me")
    )
    entries = node.core.kernel.state.mailboxes[WORKER].entries
    before = [entry.envelope.content for entry in entries.values()][1]
    node.core.execute(Finish(take(node, WORKER), b"1", Usage(5)))
    assert waiting(node, WORKER) == 0
    node.core.execute(SetBudget("t1", 0))
    assert [entry.envelope.content for entry in entries.values()] == [before]
