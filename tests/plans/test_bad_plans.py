"""Bad plans: each is refused with one line that names workflow, step and field."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.errors import InvalidPlan
from relaymesh.plans.document import check_input, compile_plan
from tests.plans.bad_undos import BAD_UNDOS
from tests.plans.bad_waits import BAD_WAITS
from tests.plans.documents import NAMES_HINT, RETRY_MAX, A, B, Bad, deep, flow, one

BAD: list[Bad] = [
    ("no object", [], "plan: must be an object, not a list", None),
    ("no name", {"steps": {}}, "plan, workflow: the name of the workflow is missing", "add workflow: NAME"),
    ("name of wrong type", {"workflow": 3}, "plan, workflow: 3 is no name", NAMES_HINT),
    ("name with a slash", {"workflow": "a/b"}, "plan, workflow: 'a/b' is no name", NAMES_HINT),
    ("no steps", {"workflow": "w"}, "workflow 'w', steps: at least one step is needed", None),
    ("empty steps", flow(), "workflow 'w', steps: at least one step is needed", None),
    (
        "empty list",
        {"workflow": "w", "steps": []},
        "workflow 'w', steps: at least one step is needed",
        None,
    ),
    (
        "steps of wrong type",
        {"workflow": "w", "steps": 5},
        "workflow 'w', steps: must be an object or a list, not a number",
        None,
    ),
    (
        "unknown field",
        {**one(), "stepz": 1},
        "workflow 'w': unknown field 'stepz'",
        "did you mean 'steps'?",
    ),
    (
        "far unknown field",
        {**one(), "colour": 1},
        "workflow 'w': unknown field 'colour'",
        "known fields: workflow, version, input, deadline, budget, steps",
    ),
    (
        "version as a number",
        {**one(), "version": 1.0},
        "workflow 'w', version: must be text, not 1.0",
        "quote it",
    ),
    (
        "long version",
        {**one(), "version": "v" * 513},
        "workflow 'w', version: has 513 characters; 512 are allowed",
        None,
    ),
    (
        "input shape of wrong type",
        {**one(), "input": ["repo"]},
        "workflow 'w', input: must be an object of names and types, not a list",
        None,
    ),
    (
        "unknown type",
        {**one(), "input": {"repo": "text"}},
        "workflow 'w', input.repo: 'text' is no type",
        "types: string, number, integer, boolean, list, object, any",
    ),
    (
        "deadline text",
        {**one(), "deadline": "soon"},
        "workflow 'w', deadline: 'soon' is no duration",
        "write 500ms, 20s, 90m, 8h, 1d or a number of seconds",
    ),
    (
        "deadline of wrong type",
        {**one(), "deadline": True},
        "workflow 'w', deadline: must be a duration, not True",
        'write "90m" or a number of seconds',
    ),
    (
        "deadline 0",
        {**one(), "deadline": 0},
        "workflow 'w', deadline: 0 is too short: the least is 1ms",
        None,
    ),
    (
        "negative deadline",
        {**one(), "deadline": -5},
        "workflow 'w', deadline: -5 is too short: the least is 1ms",
        None,
    ),
    (
        "huge deadline",
        {**one(), "deadline": "366d"},
        "workflow 'w', deadline: '366d' is too long: the most is 365d",
        None,
    ),
    (
        "list form twice",
        {"workflow": "w", "steps": [{"name": "a", "agent": "x"}, {"name": "a", "agent": "x"}]},
        "workflow 'w', steps: two steps have the name 'a'",
        None,
    ),
    (
        "list form without a name",
        {"workflow": "w", "steps": [{"agent": "x"}]},
        "workflow 'w', steps: step 1 needs a name that is text, not None",
        None,
    ),
    (
        "list form of texts",
        {"workflow": "w", "steps": ["a"]},
        "workflow 'w', steps: step 1 must be an object, not a string",
        None,
    ),
    ("step name", flow(**{"a/b": {}}), "workflow 'w', steps: 'a/b' is no name of a step", NAMES_HINT),
    ("empty step name", flow(**{"": {}}), "workflow 'w', steps: '' is no name of a step", NAMES_HINT),
    (
        "reserved step name",
        flow(**{"continue": {}}),
        "workflow 'w', steps: no step can have the name 'continue': it is a word of on_failure",
        None,
    ),
    (
        "step of wrong type",
        {"workflow": "w", "steps": {"a": "x"}},
        "workflow 'w', step 'a': must be an object, not a string",
        None,
    ),
    (
        "10,001 steps",
        flow(**{f"s{number}": {} for number in range(10_001)}),
        "workflow 'w', steps: has 10001 steps; 10000 are allowed",
        None,
    ),
    (
        "unknown step field",
        one(agnt="y"),
        "workflow 'w', step 'a': unknown field 'agnt'",
        "did you mean 'agent'?",
    ),
    (
        "no agent",
        {"workflow": "w", "steps": {"a": {}}},
        A + "agent: the agent is missing",
        "name the agent that does the step, or write ask, wait, signal or workflow in its place",
    ),
    (
        "agent of wrong type",
        one(agent=5),
        A + "agent: must be the name of an agent or {capability: WORD}, not 5",
        None,
    ),
    (
        "agent by capability, misspelt",
        one(agent={"capabilty": "code"}),
        A + "agent: unknown field 'capabilty'",
        "did you mean 'capability'?",
    ),
    (
        "agent by capability, and by name",
        one(agent={"capability": "code", "name": "coder"}),
        A + "agent: unknown field 'name'",
        "known fields: capability",
    ),
    (
        "agent by no capability",
        one(agent={}),
        A + "agent.capability: must be a word, not None",
        "write agent: {capability: WORD}",
    ),
    (
        "agent by a number",
        one(agent={"capability": 5}),
        A + "agent.capability: must be a word, not 5",
        "write agent: {capability: WORD}",
    ),
    (
        "agent by an empty capability",
        one(agent={"capability": ""}),
        A + "agent.capability: must have 1 to 512 characters, not 0",
        None,
    ),
    (
        "agent by a capability that cannot be printed",
        one(agent={"capability": "a\x00b"}),
        A + "agent.capability: 'a\\x00b' has a character that cannot be printed",
        None,
    ),
    (
        "agent by an expression",
        one(agent={"capability": "${{ input.x }}"}),
        A + "agent.capability: must be a word: expressions are not evaluated here",
        None,
    ),
    (
        "agent elsewhere",
        one(agent="other/x"),
        A + "agent: 'other/x' is in another namespace than the task, which is in 'default'",
        None,
    ),
    (
        "agent as an expression",
        one(agent="${{ input.x }}"),
        A + "agent: must be a name: expressions are not evaluated here",
        None,
    ),
    (
        "malformed agent",
        one(agent="a b"),
        A + "agent: agent 'default/a b' is malformed",
        "use letters, digits and . _ @ + -, starting with a letter, digit or _",
    ),
    ("needs as text", one(needs="b"), A + "needs: must be a list of step names, not 'b'", "write [b]"),
    ("needs with a number", one(needs=[1]), A + "needs: must be a list of step names; 1 is none", None),
    ("self need", one(needs=["a"]), A + "needs: the step needs itself", None),
    (
        "unknown need",
        flow(build={}, b={"needs": ["biuld"]}),
        B + "needs: unknown step 'biuld'",
        "did you mean 'build'?",
    ),
    ("need twice", flow(a={}, b={"needs": ["a", "a"]}), B + "needs: names 'a' twice", None),
    (
        "cycle",
        flow(a={"needs": ["b"]}, b={"needs": ["a"]}),
        "workflow 'w', needs: steps wait for each other: a -> b -> a",
        None,
    ),
    (
        "long cycle behind a good step",
        flow(s={}, a={"needs": ["c", "s"]}, b={"needs": ["a"]}, c={"needs": ["b"]}, d={"needs": ["c"]}),
        "workflow 'w', needs: steps wait for each other: a -> b -> c -> a",
        None,
    ),
    (
        "handlers in a cycle",
        flow(a={"on_failure": "b"}, b={"on_failure": "a"}),
        "workflow 'w', needs: steps wait for each other: a -> b -> a",
        None,
    ),
    (
        "need of its handler",
        flow(a={"on_failure": "b", "needs": ["b"]}, b={}),
        "workflow 'w', needs: steps wait for each other: a -> b -> a",
        None,
    ),
    (
        "unknown handler",
        one(on_failure="contineu"),
        A + "on_failure: unknown step 'contineu'",
        "did you mean 'continue'?",
    ),
    ("own handler", one(on_failure="a"), A + "on_failure: a step cannot handle its own failure", None),
    (
        "one handler for two",
        flow(a={"on_failure": "h"}, b={"on_failure": "h"}, h={}),
        B + "on_failure: 'h' handles the failure of 'a' already",
        "use a step for each",
    ),
    (
        "on_failure of wrong type",
        one(on_failure=1),
        A + "on_failure: must be fail, continue or the name of a step, not 1",
        None,
    ),
    (
        "parallel as a float",
        one(for_each="${{ input.x }}", parallel=2.0),
        A + "parallel: must be a whole number, not 2.0",
        None,
    ),
    (
        "parallel 0",
        one(for_each="${{ input.x }}", parallel=0),
        A + "parallel: must lie between 1 and 100, not 0",
        None,
    ),
    (
        "parallel 101",
        one(for_each="${{ input.x }}", parallel=101),
        A + "parallel: must lie between 1 and 100, not 101",
        None,
    ),
    (
        "parallel without for_each",
        one(parallel=2),
        A + "parallel: only a step with for_each runs in parallel",
        "add for_each",
    ),
    (
        "timeout list",
        one(timeout=[]),
        A + "timeout: must be a duration, not []",
        'write "90m" or a number of seconds',
    ),
    (
        "negative timeout",
        one(timeout="-5s"),
        A + "timeout: '-5s' is no duration",
        "write 500ms, 20s, 90m, 8h, 1d or a number of seconds",
    ),
    (
        "huge attempt_timeout",
        one(attempt_timeout=10**12),
        A + "attempt_timeout: 1000000000000 is too long: the most is 365d",
        None,
    ),
    ("short lease", one(lease="500ms"), A + "lease: '500ms' is too short: the least is 1s", None),
    (
        "retry as a number",
        one(retry=5),
        A + "retry: must be an object, not 5",
        "write retry: {max_attempts: 5}",
    ),
    (
        "retry field",
        one(retry={"max_attempt": 5}),
        A + "retry: unknown field 'max_attempt'",
        "did you mean 'max_attempts'?",
    ),
    (
        "retry float",
        one(retry={"max_attempts": 2.5}),
        A + "retry.max_attempts: must be a whole number, not 2.5",
        None,
    ),
    (
        "retry bool",
        one(retry={"max_abandoned": True}),
        A + "retry.max_abandoned: must be a whole number, not True",
        None,
    ),
    (
        "no attempts",
        one(retry={"max_attempts": 0}),
        A + f"retry.max_attempts: must lie between 1 and {RETRY_MAX}, not 0",
        None,
    ),
    (
        "priority name",
        one(priority="hgih"),
        A + "priority: priority 'hgih' is none of critical, urgent, high, normal, medium, low, background",
        None,
    ),
    (
        "priority 9",
        one(priority=9),
        A + "priority: priority must be 1 (first) to 5 (last) or a name, not 9",
        None,
    ),
    ("key of wrong type", one(key=1), A + "key: must be text, not 1", None),
    ("empty key", one(key=""), A + "key: must have 1 to 512 characters, not 0", None),
    (
        "key expression",
        one(key="${{ input.x }}"),
        A + "key: must be plain text: expressions are not evaluated here",
        None,
    ),
    ("when as a bool", one(when=True), A + "when: must be one expression ${{ … }}, not True", None),
    (
        "when without braces",
        one(when="input.x == 1"),
        A + "when: must be one expression ${{ … }}, not 'input.x == 1'",
        None,
    ),
    (
        "when with text around",
        one(when="x ${{ true }}"),
        A + "when: must be one expression ${{ … }}, not 'x ${{ true }}'",
        None,
    ),
    ("empty when", one(when="${{ }}"), A + "when: the expression is empty", None),
    ("for_each as a list", one(for_each=[1]), A + "for_each: must be one expression ${{ … }}, not [1]", None),
    (
        "unclosed expression",
        one(input="a ${{ input.x }"),
        A + "input: '${{' without '}}': '${{ input.x }'",
        None,
    ),
    (
        "expression in a key",
        one(input={"${{ input.x }}": 1}),
        A + "input: the key '${{ input.x }}' holds an expression: only values may",
        None,
    ),
    ("empty expression in input", one(input="${{ }}"), A + "input: ${{ }}: the expression is empty", None),
    ("syntax", one(input="${{ 1 + }}"), A + "input: ${{ 1 + }}: column 4: mismatched input '<EOF>'", None),
    ("syntax in when", one(when="${{ ) }}"), A + "when: ${{ ) }}: column 1: mismatched input ')'", None),
    (
        "unknown variable",
        one(input="${{ env.HOME }}"),
        A + "input: ${{ env.HOME }}: unknown name 'env': an expression reads steps, input, item, index",
        None,
    ),
    ("unknown function", one(input="${{ now() }}"), A + "input: ${{ now() }}: unknown function 'now'", None),
    (
        "misspelt function",
        one(input="${{ 'a'.startswith('b') }}"),
        A + "input: ${{ 'a'.startswith('b') }}: unknown function 'startswith': did you mean 'startsWith'?",
        None,
    ),
    (
        "hidden name",
        one(input="${{ [1].map(item, item) }}"),
        A + "input: ${{ [1].map(item, item) }}: "
        "a loop names its variable 'item', which hides the other 'item': rename it",
        None,
    ),
    (
        "long expression",
        one(when="${{ '" + "é" * 3000 + "' == 'a' }}"),
        A + "when: ${{ '" + "é" * 99 + "… }}: an expression has 6009 bytes; 4096 are allowed",
        None,
    ),
    (
        "many tokens",
        one(when="${{ " + "+".join("1" * 300) + " == 1 }}"),
        A + "when: ${{ " + "1+" * 50 + "… }}: an expression has 602 tokens; 500 are allowed",
        None,
    ),
    (
        "nested loops",
        one(input="${{ [1].map(a, [1].map(b, [1].map(c, c))) }}"),
        A + "input: ${{ [1].map(a, [1].map(b, [1].map(c, c))) }}: loops are nested deeper than 2",
        None,
    ),
    (
        "a circle of what is read",
        flow(a={"input": "${{ steps.b.output }}"}, b={"when": "${{ steps.a.output.x }}"}),
        B + "when: steps.a.output: steps wait for each other: a -> b -> a",
        None,
    ),
    (
        "a circle of needs and what is read",
        flow(a={"for_each": "${{ steps['c'].output }}"}, b={"needs": ["a"]}, c={"needs": ["b"]}),
        A + "for_each: steps.c.output: steps wait for each other: a -> b -> c -> a",
        None,
    ),
    (
        "own output",
        one(input="${{ steps.a.output }}"),
        A + "input: steps.a.output: a step cannot read its own output",
        None,
    ),
    (
        "unknown step in an expression",
        one(input="${{ steps.zz.output }}"),
        A + "input: steps.zz: there is no step 'zz'",
        None,
    ),
    (
        "dash in a name",
        flow(**{"x-y": {}, "y": {}, "b": {"needs": ["x-y"], "input": "${{ steps.x-steps.y.output }}"}}),
        B + "input: steps.x: there is no step 'x'",
        'write steps["x-y"]',
    ),
    (
        "no output",
        flow(a={}, b={"needs": ["a"], "input": "${{ steps.a.result }}"}),
        B + "input: steps.a: of a step only its output can be read",
        "write steps.a.output",
    ),
    (
        "all steps",
        flow(a={}, b={"needs": ["a"], "input": "${{ size(steps) }}"}),
        B + "input: 'steps' must be followed by the name of a step",
        'write steps.NAME.output or steps["NAME"].output',
    ),
    (
        "computed step",
        flow(a={}, b={"needs": ["a"], "input": "${{ steps['a' + ''].output }}"}),
        B + "input: 'steps' must be followed by the name of a step",
        'write steps.NAME.output or steps["NAME"].output',
    ),
    (
        "item outside",
        one(input="${{ item }}"),
        A + "input: 'item' is known only in a step with for_each",
        "add for_each, or use input or steps",
    ),
    (
        "index outside",
        one(input="n${{ index }}"),
        A + "input: 'index' is known only in a step with for_each",
        "add for_each, or use input or steps",
    ),
    (
        "item in when",
        one(for_each="${{ input.x }}", when="${{ item }}"),
        A + "when: 'item' is not known here: when is evaluated once, before the items",
        None,
    ),
    (
        "undeclared input",
        {**one(input="${{ input.rpeo }}"), "input": {"repo": "string"}},
        A + "input: input.rpeo: the workflow declares no input 'rpeo'",
        "did you mean 'repo'?",
    ),
    (
        "half an emoji",
        one(input={"t": "\ud83d"}),
        "workflow 'w': steps.a.input.t: a text holds half a surrogate pair (half an emoji)",
        None,
    ),
    (
        "half an emoji as a key",
        one(input={"\ud83d": 1}),
        "workflow 'w': steps.a.input: a text holds half a surrogate pair (half an emoji)",
        None,
    ),
    ("NaN", one(input=float("nan")), "workflow 'w': steps.a.input: nan is not JSON", None),
    ("a set", one(input={1}), "workflow 'w': steps.a.input: a set is not JSON", None),
    ("bytes", one(input=[b"x"]), "workflow 'w': steps.a.input[0]: a bytes is not JSON", None),
    ("number as a key", one(input={1: 2}), "workflow 'w': steps.a.input: the key 1 is not text", None),
    ("huge number", one(input=2**64), "workflow 'w': steps.a.input: a number has more than 64 bits", None),
    ("deep", one(input=deep(62)), "workflow 'w': is nested deeper than 64 levels", None),
    (
        "large",
        one(input="x" * 1_048_576),
        "workflow 'w': has 1048631 bytes as JSON; 1048576 are allowed",
        None,
    ),
    *BAD_WAITS,
    *BAD_UNDOS,
]


@pytest.mark.parametrize(
    ("document", "message", "hint"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD]
)
def test_a_bad_plan_is_refused_in_one_line(document: Any, message: str, hint: str | None) -> None:
    with pytest.raises(InvalidPlan) as caught:
        compile_plan(document)
    assert caught.value.message == message
    assert caught.value.hint == (InvalidPlan.default_hint if hint is None else hint)
    assert len(str(caught.value).splitlines()) == 1


SHAPED = {**one(), "input": {"repo": "string", "n": "integer", "f": "number", "b": "boolean", "l": "list"}}
GOOD_INPUT = {"repo": "r", "n": 1, "f": 1.5, "b": True, "l": []}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "workflow 'w', input: must be an object with repo, n, f, b, l, not null"),
        ({}, "workflow 'w', input: 'repo' is missing: the workflow declares it as string"),
        ({**GOOD_INPUT, "rpeo": 1}, "workflow 'w', input: 'rpeo' is not declared"),
        ({**GOOD_INPUT, "repo": 1}, "workflow 'w', input.repo: must be string, not a number"),
        ({**GOOD_INPUT, "n": 1.0}, "workflow 'w', input.n: must be integer, not a number"),
        ({**GOOD_INPUT, "n": True}, "workflow 'w', input.n: must be integer, not a boolean"),
        ({**GOOD_INPUT, "b": 1}, "workflow 'w', input.b: must be boolean, not a number"),
        ({**GOOD_INPUT, "l": {}}, "workflow 'w', input.l: must be list, not an object"),
        ({**GOOD_INPUT, "f": float("inf")}, "workflow 'w', input: f: inf is not JSON"),
    ],
)
def test_an_input_that_does_not_agree_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InvalidPlan) as caught:
        check_input(SHAPED, value)
    assert caught.value.message == message


def test_an_input_that_agrees_is_accepted() -> None:
    check_input(SHAPED, GOOD_INPUT)
    check_input(one(), "any input, because none is declared")
    check_input({**one(), "input": {"x": "any", "o": "object"}}, {"x": None, "o": {}})
