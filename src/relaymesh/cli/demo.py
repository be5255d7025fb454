"""demo: the whole of RelayMesh in a few seconds, on a directory of its own, with nothing else running."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from relaymesh.cli import options
from relaymesh.cli.demo_approval import approval_and_undo
from relaymesh.cli.demo_worker import killed_worker
from relaymesh.cli.demo_workflow import workflow_with_a_crash
from relaymesh.cli.narration import Narrator
from relaymesh.cli.options import begin
from relaymesh.cli.output import Output, quiet
from relaymesh.cli.table import Column, short_address
from relaymesh.errors import Conflict, Empty
from relaymesh.sdk.agent import Agent
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.mesh import Mesh
from relaymesh.wire.stats import MeshStats

WAIT_S = 10.0
RETRY_MS = 300
DELAY_MS = 500


Where = Annotated[
    Path | None,
    typer.Option("--dir", metavar="PATH", help="A new directory to use; else a temporary one."),
]


def demo(context: typer.Context, directory: Where = None, json: options.Json = False) -> None:
    """Show what a mesh does, in a few seconds. It needs no set-up.

    Agents, a question, a task in order, a worker killed and its work reclaimed, a workflow, an approval, what
    was done undone, a dead letter repaired.
    Without --dir it makes a temporary directory, and keeps it so that you can look at it.
    """
    call = begin(context, directory, json)
    if call.given is None:
        path = Path(tempfile.mkdtemp(prefix="relaymesh-demo-"))
    else:
        path = call.path
        if (path / "journal").is_dir():
            raise Conflict(
                f"{path} already holds a mesh, and the demo would mix its messages with yours",
                hint="name a new directory, or leave --dir out",
            )
    tell = Narrator(call.output)
    tell.say("RelayMesh demo: agents, mailboxes, one journal, and a crash in the middle.")
    tell.say(f"Data directory: {path}")
    tell.say()
    with quiet("relaymesh.delivery"), quiet("relaymesh.alert"):
        before_the_crash(path, tell)
        worker_is_killed(path, tell)
        workflow_with_a_crash(path, tell)
        approval_and_undo(path, tell)
        stats = after_the_crash(path, tell)
    summary(call.output, tell, path, stats, temporary=call.given is None)


def before_the_crash(path: Path, tell: Narrator) -> None:
    with Mesh(path) as mesh:
        send_and_receive(mesh, tell)
        same_id_twice(mesh, tell)
        question_and_answer(mesh, tell)
        lane_with_a_retry(mesh, tell)
        mesh.agent("worker")
        mesh.agent("planner").send("worker", {"do": "render the report"}, id="render-1")


def after_the_crash(path: Path, tell: Narrator) -> MeshStats:
    with Mesh(path) as mesh:
        poison_message(mesh, tell)
        edited_redrive(mesh, tell)
        delayed_message(mesh, tell)
        topic_for_two(mesh, tell)
        return mesh.stats()


# -- the steps


def send_and_receive(mesh: Mesh, tell: Narrator) -> None:
    with tell.step(
        "send",
        "A message from one agent to another",
        "Every agent has a mailbox. A send answers with a receipt once the message is synced to disk; "
        "from then on it is delivered, or kept as a dead letter with a reason. Never lost.",
    ):
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        receipt = planner.send("coder", {"do": "bump version"}, id="bump-1.4")
        tell.fact(
            f"planner sent {receipt.id}: receipt {receipt.sequence}, synced",
            id=receipt.id,
            sequence=receipt.sequence,
        )
        with coder.receive(timeout=WAIT_S) as delivery:
            tell.fact(
                f"coder got it on attempt {delivery.attempt}, under lease {delivery.token}",
                id=delivery.id,
                attempt=delivery.attempt,
                token=delivery.token,
            )
        tell.fact("coder acked it: done, it will not come again")


def same_id_twice(mesh: Mesh, tell: Narrator) -> None:
    with tell.step(
        "idempotent",
        "The same id twice is one message",
        "A sender that is not sure whether its message went out sends it again. The id makes that harmless.",
    ):
        planner = mesh.agent("planner")
        again = planner.send("coder", {"do": "bump version"}, id="bump-1.4")
        tell.fact(
            f"sent again: the old receipt {again.sequence} comes back, marked duplicate",
            sequence=again.sequence,
            duplicate=again.duplicate,
        )
        try:
            planner.send("coder", {"do": "delete everything"}, id="bump-1.4")
        except Conflict as error:
            tell.fact(f"the same id with other content is refused: {error.code}", code=error.code)


def question_and_answer(mesh: Mesh, tell: Narrator) -> None:
    with tell.step(
        "ask",
        "A question and its answer",
        "ask() waits for the answer with the same correlation id. Acking the question and sending the "
        "answer is one step: a crash leaves both or neither.",
    ):
        reviewer = mesh.agent("reviewer")

        @reviewer.handle
        def review(delivery: Delivery) -> None:
            reviewer.answer(delivery, {"verdict": "ship it"})

        answer = mesh.agent("coder").ask("reviewer", "is 1.4 ready?", timeout=WAIT_S)
        tell.fact(
            f"coder asked, {short_address(answer.sender)} answered: {answer.content['verdict']}",
            correlation_id=answer.correlation_id,
            content=answer.content,
        )


def lane_with_a_retry(mesh: Mesh, tell: Narrator) -> None:
    with tell.step(
        "lane",
        "A task keeps its order, also across a retry",
        "Messages of one task form a lane. When one fails, those behind it wait for its retry; "
        "messages of other tasks pass.",
    ):
        builder = mesh.agent("builder", backoff_ms_base=RETRY_MS)
        planner = mesh.agent("planner")
        for step in ("compile", "test", "publish"):
            planner.send("builder", step, task="release")
        planner.send("builder", "tidy up")
        state = _next(builder, "compile").nack("the compiler is busy")
        tell.fact(f"compile fails on attempt 1: {state}; test and publish wait behind it", outcome=state)
        other = _next(builder, "tidy up")
        other.ack()
        tell.fact("meanwhile 'tidy up', of no task, passes")
        order: list[str] = []
        while len(order) < 3:
            with builder.receive(timeout=WAIT_S) as delivery:
                retried = f" (attempt {delivery.attempt})" if delivery.attempt > 1 else ""
                order.append(f"{delivery.content}{retried}")
        tell.fact("then, in order: " + ", ".join(order), order=order)


def worker_is_killed(path: Path, tell: Narrator) -> None:
    with tell.step(
        "crash",
        "A worker is killed in the middle of its work",
        "Another process takes a message under a lease and gets kill -9. No goodbye, no cleanup: "
        "the journal alone knows, and that is enough.",
    ):
        taken, pid = killed_worker(path, "worker")
        tell.fact(
            f"process {pid} took {taken['id']} on attempt {taken['attempt']} and was killed",
            id=taken["id"],
            attempt=taken["attempt"],
            pid=pid,
        )
        with Mesh(path) as mesh, mesh.agent("worker").receive(timeout=WAIT_S) as delivery:
            tell.fact(
                f"reopened: {delivery.id} is reclaimed; attempt {delivery.attempt}, lease {delivery.token}",
                id=delivery.id,
                attempt=delivery.attempt,
                token=delivery.token,
            )
        tell.fact(f"a late ack under the old lease {taken['token']} would be refused: LEASE_LOST")


def poison_message(mesh: Mesh, tell: Narrator) -> None:
    with tell.step(
        "dead_letter",
        "A poison message ends in the dead letters",
        "What fails every time is not tried forever. After its retries it is set apart, with every "
        "attempt, so that the rest can go on and a person can decide.",
    ):
        coder = mesh.agent("coder", backoff_ms_base=50, backoff_jitter=0.0)
        mesh.agent("planner").send("coder", {"patch": "main.py", "line": "ten"}, id="patch-7", max_retries=2)
        state = ""
        while state != "dead_letter":
            delivery = coder.receive(timeout=WAIT_S)
            try:
                apply_patch(delivery.content)
            except ValueError as error:
                state = delivery.nack(error, code="bad_patch")
        letter = mesh.dead_letters(receiver="coder")[0]
        tell.fact(
            f"{letter.message_id}: {letter.reason} after {letter.attempts} attempts",
            id=letter.message_id,
            reason=letter.reason,
            attempts=letter.attempts,
        )
        for failure in letter.failures:
            tell.fact(f"attempt {failure.attempt}: {failure.code}, {failure.reason}", code=failure.code)


def apply_patch(content: dict[str, Any]) -> None:
    if not isinstance(content["line"], int):
        raise ValueError(f"line must be a number, not {content['line']!r}")


def edited_redrive(mesh: Mesh, tell: Narrator) -> None:
    with tell.step(
        "redrive",
        "Repaired and sent back",
        "A dead letter can be redriven: as it was, edited, or to another agent. Redriving twice is "
        "redriving once. Edited, it gets a new id that names its origin.",
    ):
        [redriven] = mesh.redrive("patch-7", edit=lambda content: {**content, "line": 10})
        tell.fact(f"redriven to {short_address(redriven.to)} with line 10", sequence=redriven.sequence)
        with mesh.agent("coder").receive(timeout=WAIT_S) as delivery:
            apply_patch(delivery.content)
            tell.fact(
                f"coder applied it at line {delivery.content['line']}, "
                f"attempt {delivery.attempt}, origin {delivery.envelope.origin}",
                attempt=delivery.attempt,
                origin=delivery.envelope.origin,
            )


def delayed_message(mesh: Mesh, tell: Narrator) -> None:
    with tell.step(
        "delay",
        "A message for later",
        "A delayed message is durable at once and visible at its time, not before; also after a restart.",
    ):
        coder = mesh.agent("coder")
        receipt = mesh.agent("planner").send("coder", "stand-up", delay_ms=DELAY_MS)
        tell.fact(f"sent with a delay of {DELAY_MS} ms", scheduled_at=receipt.scheduled_at)
        try:
            coder.receive(timeout=0)
        except Empty:
            tell.fact(f"coder sees nothing yet; {mesh.delayed_count('coder')} delayed")
        with coder.receive(timeout=WAIT_S) as delivery:
            tell.fact(f"and then it is there: {delivery.content}", content=delivery.content)


def topic_for_two(mesh: Mesh, tell: Narrator) -> None:
    with tell.step(
        "topic",
        "One publish, two subscriptions",
        "A subscription is a mailbox of its own: it keeps what it has not handled, whatever others do. "
        "Patterns subscribe to many topics.",
    ):
        billing = mesh.subscribe("order.new", "billing")
        audit = mesh.subscribe("order.*", "audit")
        receipt = mesh.publish("order.new", {"order": 42})
        tell.fact(f"published to order.new: {receipt.targets} targets", targets=receipt.targets)
        with billing.receive(timeout=WAIT_S) as delivery:
            tell.fact(f"billing got order {delivery.content['order']} and acked it")
        waiting = len(audit.peek())
        tell.fact(f"audit (order.*) has its own copy: {waiting} waiting until it is received")


def _next(agent: Agent, expected: str) -> Delivery:
    delivery = agent.receive(timeout=WAIT_S)
    assert delivery.content == expected, delivery.content
    return delivery


# -- the end

MAILBOXES = [
    Column("mailbox", show=short_address),
    Column("accepted", "number"),
    Column("delivered", "number"),
    Column("acked", "number"),
    Column("retried", "number"),
    Column("dead", "number"),
    Column("redriven", "number"),
    Column("pending", "number"),
]


def summary(output: Output, tell: Narrator, path: Path, stats: MeshStats, *, temporary: bool) -> None:
    """The counts of every mailbox: accepted = acked + dropped + dead + pending, redriven included."""
    rows = [
        {
            "mailbox": address,
            "accepted": box.accepted,
            "delivered": box.delivered,
            "acked": box.acked,
            "retried": box.retried,
            "dead": box.dead,
            "redriven": box.redriven,
            "pending": box.pending,
        }
        for address, box in sorted(stats.mailboxes.items())
    ]
    if output.json:
        output.object({"summary": rows, "directory": str(path), "journal": str(path / "journal")})
        return
    output.rows(MAILBOXES, rows)
    tell.say()
    tell.say(f"{stats.sequence - 1} events, all in the journal: {path / 'journal'}")
    tell.say()
    tell.say("Look around:")
    tell.say(f"    export RELAYMESH_HOME={shlex.quote(str(path))}")
    for command, what in (
        ("relaymesh journal cat", "everything that just happened"),
        ("relaymesh tasks", "the workflow that survived a kill -9"),
        ("relaymesh dlq list --redriven", "the poison message"),
        ("relaymesh dlq show patch-7", "its attempts, with stack traces"),
        ("relaymesh inbox 'order.*:audit'", "what the subscription holds"),
        ("relaymesh send coder 'hello'", "send one yourself"),
        ("relaymesh doctor", "is this machine fit for it?"),
    ):
        tell.say(f"    {command:<34}# {what}")
    if temporary:
        tell.say()
        tell.say(f"When you are done: rm -r {shlex.quote(str(path))}")
