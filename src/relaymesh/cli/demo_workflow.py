"""The demo's workflow: a fan-out whose worker is killed in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relaymesh.cli.demo_worker import killed_worker
from relaymesh.cli.narration import Narrator
from relaymesh.plans.builder import Workflow
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.mesh import Mesh
from relaymesh.wire.tasks import step_message

WAIT_S = 10.0
TARGETS = ["linux", "macos", "windows"]


def workflow_with_a_crash(path: Path, tell: Narrator) -> None:
    with tell.step(
        "workflow",
        "A workflow goes on after its worker is killed",
        "A workflow is a graph of steps, and a task is one run of it. Each step is a message under a "
        "lease, so a killed worker costs one attempt of one step, not the task.",
    ):
        task = _begun(path, tell)
        taken, pid = killed_worker(path, "compiler")
        tell.fact(
            f"process {pid} took a compile step and got kill -9",
            attempt=taken["attempt"],
            pid=pid,
        )
        _ended(path, tell, task)


def _begun(path: Path, tell: Narrator) -> str:
    """Submit the task, and run its first step."""
    with Mesh(path) as mesh:
        for name in ("compiler", "publisher"):
            mesh.agent(name)

        @mesh.step("architect")
        def choose(_delivery: Delivery) -> dict[str, Any]:
            return {"targets": TARGETS}

        task = mesh.submit(release(), {"version": "1.4"})
        tell.fact(f"submitted task {task.id}: plan, then compile for each target, then publish", task=task.id)
        for state in task.watch():
            if state.step("plan").status == "SUCCESS" and state.steps_total > len(
                release().document()["steps"]
            ):
                break
        tell.fact(f"plan is done; compile became {len(TARGETS)} steps: {', '.join(TARGETS)}")
        return task.id


def _ended(path: Path, tell: Narrator, id: str) -> None:
    """Open the directory again, with workers for the other steps."""
    with Mesh(path) as mesh:
        task = mesh.task(id)

        @mesh.step("compiler")
        def compile_target(delivery: Delivery) -> str:
            return f"app-{_input(delivery)['target']}"

        @mesh.step("publisher")
        def publish(delivery: Delivery) -> dict[str, Any]:
            return {"published": _input(delivery)["files"]}

        result = task.result(timeout=WAIT_S)
        again = [step for step in task.show().steps if step.attempt > 1]
        for step in again:
            tell.fact(
                f"reopened: step {step.name} was granted again, attempt {step.attempt}: {step.status}",
                step=step.name,
                attempt=step.attempt,
                status=step.status,
            )
        tell.fact(f"the task ended as SUCCESS: published {', '.join(result['published'])}", result=result)


def release() -> Workflow:
    """plan, compile for each target, publish."""
    flow = Workflow("release", input={"version": "string"})
    plan = flow.step("plan", agent="architect", input={"goal": f"Release {flow.input.version}"})
    built = flow.step("compile", agent="compiler", for_each=plan.output.targets, input={"target": flow.item})
    flow.step("publish", agent="publisher", input={"files": built.output})
    return flow


def _input(delivery: Delivery) -> Any:
    told = step_message(delivery.envelope)
    return None if told is None else told.input
