"""The builder: references render as expressions and add needs."""

from __future__ import annotations

import pytest

from relaymesh.errors import InvalidPlan
from relaymesh.plans.builder import Reference, Workflow
from relaymesh.plans.document import compile_plan
from relaymesh.plans.reading import read_yaml
from relaymesh.plans.writing import write_yaml
from tests.plans.documents import whole


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        (Reference("input").repo, "${{ input.repo }}"),
        (Reference("input")["a b"].c[0], '${{ input["a b"].c[0] }}'),
        (Reference("steps", "x-y", "output"), '${{ steps["x-y"].output }}'),
        (Reference("input")["in"], '${{ input["in"] }}'),
        (Reference("input")['say "hi"\\'], '${{ input["say \\"hi\\"\\\\"] }}'),
    ],
)
def test_a_reference_renders_as_cel(reference: Reference, text: str) -> None:
    assert str(reference) == f"{reference}" == text


def test_a_reference_is_no_value_yet() -> None:
    with pytest.raises(TypeError, match="use it in for_each"):
        list(Reference("input"))
    with pytest.raises(TypeError, match="use it in when"):
        bool(Reference("input"))
    with pytest.raises(InvalidPlan, match="a field is text or a number"):
        _ = Reference("input")[-1]


def test_a_step_needs_what_it_refers_to() -> None:
    flow = Workflow("w")
    a = flow.step("a-1", agent="x")
    b = flow.step("b", agent="x")
    flow.step(
        "c", agent="x", needs=[b, "b"], input={"of": [a.output.name, (b.output,)], "t": f"<{a.output}>"}
    )
    assert flow.document()["steps"]["c"] == {
        "agent": "x",
        "needs": ["b", "a-1"],
        "input": {
            "of": ['${{ steps["a-1"].output.name }}', ["${{ steps.b.output }}"]],
            "t": '<${{ steps["a-1"].output }}>',
        },
    }
    assert flow.compile().steps[2].refers == (0, 1)


def test_a_name_is_used_once() -> None:
    flow = Workflow("w")
    flow.step("a", agent="x")
    with pytest.raises(InvalidPlan, match="two steps have the name 'a'"):
        flow.step("a", agent="x")


def test_a_document_is_a_copy() -> None:
    flow = Workflow("w", input={"a": "string"})
    flow.step("a", agent="x")
    flow.document()["steps"].clear()
    assert list(flow.document()["steps"]) == ["a"]


def test_every_kind_of_step_is_written_as_yaml_has_it() -> None:
    steps = whole().document()["steps"]
    assert steps["build"] == {
        "workflow": "build@2",
        "input": {"target": "${{ item }}"},
        "for_each": "${{ steps.plan.output.targets }}",
        "parallel": 4,
        "needs": ["plan"],
    }
    assert steps["night"] == {"wait": {"until": "2026-11-20T07:00:00Z"}, "needs": ["pause"]}
    assert steps["later"] == {"wait": "${{ steps.plan.output.pause }}", "needs": ["pause", "plan"]}
    assert steps["paid"]["default"] is None
    assert steps["approve"]["needs"] == ["plan", "paid"]
    assert steps["ship"]["needs"] == ["approve", "plan"]
    assert steps["ship"]["compensate"] == {
        "agent": "deployer",
        "input": {
            "id": "${{ output.id }}",
            "sure": "${{ uncertain }}",
            "of": "${{ steps.plan.output.version }}",
        },
    }


def test_a_document_is_written_and_read_back() -> None:
    flow = whole()
    text = write_yaml(flow.document())
    assert read_yaml(text) == flow.document()
    assert compile_plan(read_yaml(text)) == flow.compile()


def test_one_value_in_two_places_is_written_twice() -> None:
    shared = {"repo": ["x"]}
    assert read_yaml(write_yaml({"a": shared, "b": [shared, shared]})) == {"a": shared, "b": [shared, shared]}


def test_a_wait_has_a_duration_or_a_moment() -> None:
    flow = Workflow("w")
    for given in ({}, {"duration": 5, "until": "2026-11-20T07:00:00Z"}):
        with pytest.raises(
            InvalidPlan, match="workflow 'w', step 'a', wait: give either a duration or until"
        ):
            flow.wait("a", **given)  # type: ignore[arg-type]


def test_a_default_that_is_not_given_is_not_null() -> None:
    flow = Workflow("w")
    flow.signal("a", signal="s", timeout=5)
    flow.signal("b", signal="s", timeout=5, default=None)
    assert [step.wait and step.wait.default for step in flow.compile().steps] == [None, b"null"]
