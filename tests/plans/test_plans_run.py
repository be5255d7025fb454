"""Plans of every kind, from the document to the end: compiler and node agree on what steps mean."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from relaymesh import Failed, Workflow
from relaymesh.plans.reading import read_yaml
from relaymesh.testing import ManualMesh
from tests.plans.documents import RELEASE_PLAN


class Bench:
    """Agents that do what a test says, by step, and note what they were given."""

    def __init__(self, *names: str, **outputs: Any) -> None:
        self.mesh = ManualMesh()
        self.given: list[tuple[str, Any]] = []
        self._outputs = outputs
        for name in names:
            self.mesh.agent(name).handle(self._work)

    def _work(self, delivery: Any) -> Any:
        step = delivery.content["step"]
        self.given.append((step, delivery.content["input"]))
        output = self._outputs.get(step.partition("/")[0])
        if isinstance(output, Exception):
            raise output
        return output

    def inputs(self, step: str) -> list[Any]:
        return [input for name, input in self.given if name == step]


def test_the_release_is_not_shipped_if_its_owner_does_not_answer() -> None:
    bench = Bench(
        "planner", "builder", "reviewer", "deployer", plan={"targets": ["x", "y"]}, review={"version": "1.4"}
    )
    owner = bench.mesh.agent("release-owner")
    task = bench.mesh.submit({**read_yaml(RELEASE_PLAN), "deadline": "1d"}, {"repo": "r"})
    bench.mesh.advance(60)
    assert bench.given[0] == ("plan", {"goal": "Release r"})
    assert sorted(bench.inputs("build/0") + bench.inputs("build/1"), key=str) == [
        {"target": "x"},
        {"target": "y"},
    ]
    with owner.receive(timeout=0) as question:
        assert (question.content["question"], question.content["options"]) == ("Ship 1.4?", ["ship", "stop"])
    assert task.show().status == "RUNNING"
    bench.mesh.advance(8 * 3600)
    steps = {step.name: step.status for step in task.show().steps}
    assert (task.show().status, steps["approve"], steps["ship"]) == ("SUCCESS", "SUCCESS", "SKIPPED")


def test_waits_end_when_their_time_comes() -> None:
    bench = Bench("x")
    flow = Workflow("w")
    first = flow.wait("first", "90s")
    second = flow.wait("second", flow.input.pause, needs=[first])
    until = (bench.mesh.now + timedelta(seconds=200)).isoformat(timespec="milliseconds")
    third = flow.wait("third", until=f"{flow.input.until}", needs=[second])
    signal = flow.signal("signal", signal="go", timeout=30, default={"go": 1}, needs=[third])
    flow.step("end", agent="x", input=signal.output.go)
    task = bench.mesh.submit(flow, {"pause": 60, "until": until})
    ended: dict[str, int] = {}
    for second_now in range(0, 240, 10):
        for step in task.show().steps:
            if step.status == "SUCCESS":
                ended.setdefault(step.name, second_now)
        bench.mesh.advance(10)
    assert ended == {"first": 90, "second": 150, "third": 200, "signal": 230, "end": 230}
    assert bench.given == [("end", 1)]


def test_a_stored_workflow_is_included_for_each_item() -> None:
    bench = Bench("x", double={"n": 2})
    inner = Workflow("inner", input={"n": "integer"})
    inner.step("double", agent="x", input=inner.input.n)
    bench.mesh.put_workflow(inner, "3")
    outer = Workflow("outer")
    each = outer.include("each", workflow="inner@3", for_each=outer.input, input={"n": outer.item})
    outer.step("end", agent="x", input=each.output)
    task = bench.mesh.submit(outer, [5, 6])
    bench.mesh.advance(5)
    assert task.show().status == "SUCCESS"
    assert (bench.inputs("each/0/double"), bench.inputs("each/1/double")) == ([5], [6])


def test_what_was_done_is_undone_with_what_it_gave() -> None:
    bench = Bench("airline", "hotel", "desk", flight={"id": 7}, hotels="room", pay=Failed("no money"))
    flow = Workflow("trip")
    flight = flow.step(
        "flight",
        agent="airline",
        compensate={"input": {"cancel": flow.output.id, "sure": flow.uncertain}},
    )
    hotels = flow.step(
        "hotels",
        agent="hotel",
        for_each=flow.input,
        needs=[flight],
        compensate={"agent": "desk", "input": [flow.item, flow.index, flow.output, flight.output.id]},
    )
    flow.step("pay", agent="desk", needs=[hotels])
    task = bench.mesh.submit(flow, ["mon"])
    bench.mesh.advance(5)
    assert task.show().status == "FAILED"
    assert bench.given[-2:] == [
        ("hotels/0!undo", ["mon", 0, "room", 7]),
        ("flight!undo", {"cancel": 7, "sure": False}),
    ]
