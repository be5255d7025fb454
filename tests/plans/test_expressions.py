"""Expressions: types are kept, text is joined, and a failure says what was there."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaymesh.plans.cel_text import paths, pieces, plain_path, written
from relaymesh.plans.expressions import (
    FUNCTIONS,
    Effort,
    ExpressionFailed,
    check_expression,
    effort_of,
    evaluate,
    evaluate_list,
    evaluate_when,
)

CONTEXT: dict[str, Any] = {
    "input": {"repo": "relaymesh", "n": 3, "big": 2**64 - 1, "list": [1, 2, 3], "none": None},
    "steps": {
        "plan": {"output": {"targets": ["a", "b"], "version": "1.2", "deep": {"er": [{"x": 1.5}]}}},
        "x-y": {"output": "é😀"},
        "ok": {"output": True},
    },
    "item": {"name": "a"},
    "index": 7,
}
KEYS = st.sampled_from(["a", "size", "_x"]) | st.text()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(KEYS, inside),
    max_leaves=12,
)


def filled(template: Any) -> Any:
    return json.loads(evaluate(json.dumps(template).encode(), CONTEXT))


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("${{ input.n }}", 3),
        ("${{input.n}}", 3),
        ("  ${{ input.n }}", "  3"),
        ("${{ input.big }}", 2**64 - 1),
        ("${{ input.none }}", None),
        ("none: ${{ input.none }}", "none: null"),
        ("${{ steps.ok.output }}", True),
        ("is ${{ steps.ok.output }}", "is true"),
        ("${{ steps.plan.output.targets }}", ["a", "b"]),
        ("of ${{ steps.plan.output.targets }}!", 'of ["a","b"]!'),
        ("${{ steps.plan.output.deep.er[0].x }}", 1.5),
        ('${{ steps["x-y"].output }}', "é😀"),
        ("${{ steps['x-y'].output + '!' }}", "é😀!"),
        ("${{ input.repo }}/${{ index }}", "relaymesh/7"),
        ("${{ item }}", {"name": "a"}),
        ({"a": ["${{ input.n }}", {"b": "${{ item.name }}"}], "c": 1}, {"a": [3, {"b": "a"}], "c": 1}),
        ("${{ {'a': {'b': input.n}} }}", {"a": {"b": 3}}),
        ("${{ '}}' + input.repo }}", "}}relaymesh"),
        ("${{ '${{' }}", "${{"),
        ("${{ input.list.map(x, x * 2).filter(y, y > 2) }}", [4, 6]),
        ("${{ has(input.other) ? input.other : 'none' }}", "none"),
        ("${{ input.n > 2 && input.repo.startsWith('relay') }}", True),
        ("plain $ {{ text }}", "plain $ {{ text }}"),
        (None, None),
    ],
)
def test_a_template_is_filled(template: Any, value: Any) -> None:
    assert filled(template) == value


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "${{ steps.plan.output.target }}",
            (
                "${{ steps.plan.output.target }}: no field 'target' in steps.plan.output; "
                "it has: deep, targets, version"
            ),
        ),
        (
            "${{ steps.ok.output.x }}",
            "${{ steps.ok.output.x }}: no field 'x' in steps.ok.output; it is a boolean",
        ),
        ("${{ input.list[9] }}", "${{ input.list[9] }}: no item 9 in input.list; it is a list of 3"),
        ("${{ input.list.x }}", "${{ input.list.x }}: no field 'x' in input.list; it is a list of 3"),
        ("${{ input.none.x.size() }}", "${{ input.none.x.size() }}: no field 'x' in input.none; it is null"),
        ("${{ input.list.map(x, x.y) }}", None),
        (
            "${{ steps.gone.output }}",
            "${{ steps.gone.output }}: no field 'gone' in steps; it has: ok, plan, x-y",
        ),
        ("${{ item.map }}", "${{ item.map }}: no field 'map' in item; it has: name"),
        ("${{ 1 / 0 }}", "${{ 1 / 0 }}: division by zero in CEL expression"),
        ("${{ 1 + 2.5 }}", None),
        ("${{ size(1) }}", "${{ size(1) }}: size() does not take what it was given"),
        ("${{ 1.0 / 0.0 }}", "${{ 1.0 / 0.0 }}: gives inf, which JSON cannot carry"),
        ("${{ [double('nan')] }}", "${{ [double('nan')] }}: gives nan, which JSON cannot carry"),
        ("${{ b'x' }}", "${{ b'x' }}: gives bytes, which JSON cannot carry"),
        (
            "${{ duration('1s') }}",
            "${{ duration('1s') }}: gives a duration: use string(…), which JSON cannot carry",
        ),
        ("${{ {1: 2} }}", "${{ {1: 2} }}: gives an object with the key 1: keys are strings"),
        ("${{ 9223372036854775807 + 1 }}", None),
        ("${{ 'a'.matches('(') }}", None),
    ],
)
def test_a_failing_expression_says_what_is_missing_and_what_was_there(
    template: str, message: str | None
) -> None:
    with pytest.raises(ExpressionFailed) as caught:
        filled(template)
    told = caught.value.message
    assert told.startswith(template)
    assert len(told.splitlines()) == 1
    assert message is None or told == message


def test_a_timestamp_is_refused_with_the_way_out() -> None:
    with pytest.raises(ExpressionFailed, match=r"gives a timestamp: use string"):
        filled("${{ timestamp('2026-01-01T00:00:00Z') }}")


def test_a_number_that_cel_cannot_hold_is_refused_and_not_rounded() -> None:
    with pytest.raises(ExpressionFailed, match="more than 64 bits"):
        evaluate(b'"${{ input.n }}"', {"input": {"n": 2**70}})


def test_a_value_nested_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(60):
        value = [value]
    template = json.dumps([[[[["${{ input }}"]]]]]).encode()
    with pytest.raises(ExpressionFailed, match="nested deeper than 64"):
        evaluate(template, {"input": value})


def test_the_same_values_give_the_same_bytes() -> None:
    context = {"input": {str(number): number for number in range(50)}}
    assert len({evaluate(b'["${{ input }}", "x${{ input }}"]', context) for _ in range(20)}) == 1


@given(JSON, st.lists(st.sampled_from(["a", "size", "for", "_x"]), max_size=3))
@settings(max_examples=300, deadline=None)
def test_a_value_that_is_only_read_is_what_the_library_gives(value: Any, fields: list[str]) -> None:
    path = ".".join(["input", *fields])
    context = {"input": value}
    plain, by_library = [_outcome(f"${{{{ {text} }}}}", context) for text in (path, f"({path})")]
    assert plain == by_library


def _outcome(template: str, context: dict[str, Any]) -> bytes | str:
    try:
        return evaluate(json.dumps(template).encode(), context)
    except ExpressionFailed as error:
        return error.message.replace("(", "").replace(")", "")


def test_an_expression_that_only_reads_a_value_is_told_from_others() -> None:
    assert plain_path("steps.plan.output") == ("steps", "plan", "output")
    assert plain_path("index") == ("index",)
    for other in ("input.in", "input.a()", "other.a", "input.a[0]", "input. a", "-index", "input.", "inputs"):
        assert plain_path(other) is None, other
    assert plain_path("input" + ".a" * 200) is None, "the library counts its tokens"


def test_a_condition_must_be_true_or_false() -> None:
    assert evaluate_when("steps.ok.output", CONTEXT) is True
    assert evaluate_when("input.n == 4", CONTEXT) is False
    with pytest.raises(ExpressionFailed, match="a condition must give true or false, not a number"):
        evaluate_when("input.n", CONTEXT)


def test_for_each_must_be_a_list_of_bounded_length() -> None:
    assert evaluate_list("steps.plan.output.targets", CONTEXT) == ["a", "b"]
    assert evaluate_list("[]", {}) == []
    with pytest.raises(ExpressionFailed, match="for_each must give a list, not an object"):
        evaluate_list("input", CONTEXT)
    assert len(evaluate_list("input", {"input": list(range(10_000))})) == 10_000
    with pytest.raises(ExpressionFailed, match="for_each gives 10001 items; 10000 are allowed"):
        evaluate_list("input", {"input": list(range(10_001))})


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("steps.plan.output.a", ["steps.plan.output.a"]),
        ('steps["x-y"].output', ['steps["x-y"].output']),
        ("steps . plan\n. output", ["steps.plan.output"]),
        ("'steps.q.output' + steps.p.output", ["steps.p.output"]),
        ('"\\"steps.q" + r"\\" + input.a', ["input.a"]),
        ("// steps.q\n input.a", ["input.a"]),
        ("input.steps.q", ["input.steps.q"]),
        ("steps.a.output.exists(i, i == input.x[0])", ["steps.a.output.exists", "input.x[0]"]),
        ("steps[input.name].output", ["steps", "input.name"]),
        ("[1].map(x, x)", []),
    ],
)
def test_references_are_found(expression: str, read: list[str]) -> None:
    assert [written(path.parts) for path in paths(expression)] == read
    check_expression(expression)


def test_a_text_is_cut_at_the_right_braces() -> None:
    assert pieces("a${{ {'}}': {}} }}b${{'''}}'''}}") == [
        (False, "a"),
        (True, "{'}}': {}}"),
        (False, "b"),
        (True, "'''}}'''"),
    ]


def test_the_longest_chains_survive_a_small_stack() -> None:
    """The library recurses for each operator: without a limit, a plan could end the process."""
    code = (
        "import threading; from relaymesh.plans.expressions import evaluate_when\n"
        "threading.stack_size(262144)\n"
        "for text in ('+'.join(['1'] * 248) + ' > 1', 'has(input' + '.a' * 240 + ')', '!' * 496 + 'true'):\n"
        "    def run():\n"
        "        try: evaluate_when(text, {'input': {}})\n"
        "        except Exception as error: print(str(error)[-60:])\n"
        "    thread = threading.Thread(target=run); thread.start(); thread.join()\n"
        "print('survived')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stdout.endswith("survived\n"), ran.stderr


def test_cel_is_loaded_with_the_first_expression_only() -> None:
    code = (
        "import sys; from relaymesh.plans.document import compile_plan\n"
        "compile_plan({'workflow': 'w', 'steps': {'a': {'agent': 'x', 'input': 'plain'}}})\n"
        "assert 'cel' not in sys.modules\n"
        "compile_plan({'workflow': 'w', 'steps': {'a': {'agent': 'x', 'input': '${{ 1 }}'}}})\n"
        "assert 'cel' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_function_reads_a_clock_or_is_random() -> None:
    assert not {name for name in FUNCTIONS if "now" in name.lower() or "rand" in name or "uuid" in name}


@pytest.mark.parametrize(
    ("expression", "items"),
    [("input.xs.map(x, x + 1)", 501), ("input.xs.filter(x, input.xs.exists(y, y == x))", 61)],
)
def test_a_loop_over_a_long_list_is_refused(expression: str, items: int) -> None:
    """The library takes quadratic time for it, and holds the interpreter meanwhile."""
    context = {"input": {"xs": list(range(items))}, "steps": {}}
    with pytest.raises(ExpressionFailed, match=f"one of {items} is there"):
        evaluate_list(expression, context)
    context = {"input": {"xs": list(range(items - 1))}, "steps": {}}
    assert len(evaluate_list(expression, context)) == items - 1


TEXT = "x" * 100_000
NUMBERS = list(range(60))


@pytest.mark.parametrize(
    "expression",
    [
        " + ".join(["input.text"] * 100),
        "input.xs.map(x, input.xs.map(y, input.text))",
        f"({' + '.join(['input.xs'] * 40)}).map(x, x)",
        "input.xs.map(x, input.xs).map(x, input.xs.map(y, x)).map(z, input.xs.map(w, z))",
        "[input.xs, input.xs].map(x, x + x + x + x).map(y, y.map(z, y))",
        "input.text.matches('((x{1,100}){1,100}){1,10}y')",
        "input.text.matches(input.text)",
        "input.xs.all(x, input.text.matches('(x[a-w]+.*z){1,9}$'))",
    ],
)
def test_work_that_nothing_could_stop_is_refused(expression: str) -> None:
    """Each of these holds the interpreter for long, some for hours."""
    context = {"input": {"xs": NUMBERS, "text": TEXT}, "steps": {}}
    with pytest.raises(ExpressionFailed, match="too much work"):
        evaluate(json.dumps("${{ " + expression + " }}").encode(), context)


@pytest.mark.parametrize(
    "expression",
    [
        "input.text + input.text + input.text",
        "input.rows.filter(r, r.ok && r.name.matches('^[a-z]+[0-9]{1,4}$')).map(r, {'name': r.name, 'r': r})",
        "input.xs.map(x, input.xs.map(y, x * y))",
        "['a', 'b'].exists(k, k in input.xs.map(x, string(x)))",
        "input.rows[0].tags.map(t, t + '!')",
    ],
)
def test_work_of_every_day_is_done(expression: str) -> None:
    rows = [{"name": f"row{i}", "ok": True, "tags": ["a", "b"], "size": i} for i in range(60)]
    context = {"input": {"xs": NUMBERS, "text": TEXT, "rows": rows}, "steps": {}}
    assert evaluate(json.dumps("${{ " + expression + " }}").encode(), context)


def test_many_expressions_that_read_much_are_refused() -> None:
    context = {"input": {"n": 1, "text": TEXT}, "steps": {}}
    many = json.dumps(["${{ input.text.size() }}"] * 1_000).encode()
    with pytest.raises(ExpressionFailed, match="its 1000 expressions read more than 67108864 bytes"):
        evaluate(many, context)
    assert evaluate(many.replace(b"text.size()", b"n"), context) == b"[" + b",".join([b"1"] * 1_000) + b"]"


def test_what_an_input_takes_is_known_before_it_is_evaluated() -> None:
    assert effort_of(b'{"a":"${{ input.x }} of ${{ steps.plan.output }}"}') == Effort.NONE
    assert effort_of(b'"${{ input.x + 1 }}"') == Effort.READS
    assert effort_of(b'["${{ input.l.map(x, x) }}"]') == Effort.LOOPS
    assert effort_of(b"\"${{ input.x.matches('a+') }}\"") == Effort.LOOPS
    assert effort_of(b'"' + b"x" * 5_000 + b'"') == Effort.LOOPS
