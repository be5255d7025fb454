"""The demo's approval: a step asks, a deployment fails, and what was done is undone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relaymesh.cli.narration import Narrator
from relaymesh.errors import TaskFailed
from relaymesh.plans.builder import Workflow
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.endings import Failed
from relaymesh.sdk.mesh import Mesh

WAIT_S = 10.0


def approval_and_undo(path: Path, tell: Narrator) -> None:
    with (
        tell.step(
            "approval",
            "A workflow asks a person, and undoes what it did when it fails",
            "A step that asks holds no worker: the question is mail, and the task waits for days if it must. "
            "A task that fails undoes its finished steps, the last one first.",
        ),
        Mesh(path) as mesh,
    ):
        done: list[str] = []

        @mesh.step("deployer")
        def deploy(delivery: Delivery) -> str:
            done.append(str(delivery.step))
            if delivery.step == "smoke-test":
                raise Failed("the new version does not answer")
            return "ok"

        owner = mesh.agent("release-owner")
        task = mesh.submit(rollout(), {"version": "1.4"})
        question = owner.receive(timeout=WAIT_S)
        told: dict[str, Any] = question.content
        tell.fact(f"release-owner got the question: {told['question']}", question=told["question"])
        owner.answer(question, "ship")
        tell.fact("release-owner answered: ship", answer="ship")
        try:
            task.result(timeout=WAIT_S)
        except TaskFailed as error:
            tell.fact(f"the task ended as FAILED: {error.message.partition(': ')[2]}", reason=error.message)
        undone = [name for name in done if name.endswith("!undo")]
        tell.fact(f"undone, the last one first: {', '.join(undone)}", undone=undone)


def rollout() -> Workflow:
    """upload, approve, switch, smoke-test; upload and switch can be undone."""
    flow = Workflow("rollout", input={"version": "string"})
    undo = {"input": {"undo": True}}
    upload = flow.step("upload", agent="deployer", compensate=undo)
    approve = flow.ask(
        "approve",
        agent="release-owner",
        question=f"Ship {flow.input.version}?",
        options=["ship", "stop"],
        timeout="8h",
        default="stop",
        needs=[upload],
    )
    switch = flow.step(
        "switch",
        agent="deployer",
        when="${{ steps.approve.output == 'ship' }}",
        needs=[approve],
        compensate=undo,
    )
    flow.step("smoke-test", agent="deployer", needs=[switch])
    return flow
