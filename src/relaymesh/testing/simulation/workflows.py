"""Random small workflows, and what their few expressions mean: said here once more."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec

from relaymesh.kernel.tasks.plan import Plan, StepPlan, WaitPlan

OUTPUT = "${{ steps.%s.output }}"
ITEM = "${{ item }}"
UNDONE = "${{ output }}"
"""The output of the step that is undone."""
WHENS = ("true", "false", "input.go")
LISTS: dict[str, list[Any]] = {
    "[]": [],
    "[10]": [10],
    "[10, 20, 30]": [10, 20, 30],
    "[1, 2, 3, 4, 5]": [1, 2, 3, 4, 5],
}
SECONDS = (0.001, 1, 2.5, 20)
"""How long steps wait."""
SIGNALS = ("go", "stop")
OPTIONS = ("yes", "no")
DEFAULT = b'"by default"'


def condition(when: str, input: Any) -> bool:
    """Whether a step with this condition runs."""
    return when in ("", "true") or (when == "input.go" and input["go"] is True)


def random_input(rng: random.Random) -> bytes:
    return json.dumps({"go": rng.random() < 0.6, "n": rng.randrange(1000)}).encode()


def random_plan(rng: random.Random, agents: list[str]) -> Plan:
    """One to five steps: a chain, a fan-out, or anything."""
    count = rng.choice((1, 2, 3, 3, 4, 5))
    shape = rng.choice(("chain", "any", "any", "wide"))
    needs: list[set[int]] = [_needs(rng, shape, number) for number in range(count)]
    caught: dict[int, tuple[str, int]] = {}
    handlers: set[int] = set()
    for number in range(count):
        roll = rng.random()
        free = [each for each in range(number + 1, count) if each not in handlers]
        if roll < 0.25 and free:
            handler = rng.choice(free)
            handlers.add(handler)
            needs[handler].add(number)
            caught[number] = "handle", handler
        elif roll < 0.5:
            caught[number] = "continue", -1
    steps = tuple(
        [
            _step(rng, number, needs[number], *caught.get(number, ("fail", -1)), agents)
            for number in range(count)
        ]
    )
    return Plan(name=f"w{rng.randrange(4)}", steps=steps, deadline_ms=rng.choice((0, 0, 0, 8_000, 60_000)))


def _needs(rng: random.Random, shape: str, number: int) -> set[int]:
    if number == 0 or shape == "wide":
        return {0} if number else set()
    if shape == "chain":
        return {number - 1}
    return {each for each in range(number) if rng.random() < 0.5}


def _step(
    rng: random.Random, number: int, needs: set[int], on_failure: Any, handler: int, agents: list[str]
) -> StepPlan:
    for_each = rng.choice(list(LISTS)) if rng.random() < 0.3 else ""
    refers = tuple(sorted(each for each in needs if rng.random() < 0.7))
    input: dict[str, Any] = {"p": number}
    input |= {f"from{each}": OUTPUT % f"s{each}" for each in refers}
    if for_each:
        input["item"] = ITEM
    return StepPlan(
        name=f"s{number}",
        mailbox=rng.choice(agents),
        input=json.dumps(input).encode(),
        dynamic=bool(refers or for_each),
        needs=tuple(sorted(needs)),
        refers=refers,
        when=rng.choice(WHENS) if rng.random() < 0.25 else "",
        for_each=for_each,
        parallel=rng.choice((0, 1, 2)) if for_each else 0,
        on_failure=on_failure,
        handler=handler,
        max_attempts=rng.choice((1, 2, 3)),
        max_abandoned=rng.choice((0, 1, 2, 10)),
        lease_ms=rng.choice((1_000, 2_000, 15_000)),
        attempt_timeout_ms=rng.choice((0, 0, 0, 3_000)),
        timeout_ms=rng.choice((0, 0, 0, 5_000, 30_000)),
        priority=rng.choice((1, 2, 2, 3, 5)),
        key=rng.choice((None, None, None, None, "a")),
    )


# -- waits, undoing, budgets, growing


def enriched(rng: random.Random, plan: Plan, roomy: list[str]) -> Plan:
    """The same plan, where some steps wait, may grow or can be undone, and which may have a budget.

    `roomy`: agents whose mailboxes have room for questions, and for whatever undoes a step.
    """
    steps = list(plan.steps)
    for number, step in enumerate(steps):
        roll = rng.random()
        if roll < 0.2:
            steps[number] = _waiting(rng, step, roomy)
        else:
            steps[number] = _richer(rng, step, _before(steps, number), roomy)
    return msgspec.structs.replace(
        plan,
        steps=tuple(steps),
        cost_micros=rng.choice((0, 0, 10, 20, 40)),
        tokens=rng.choice((0, 0, 0, 150)),
    )


def random_group(
    rng: random.Random, prefix: str, outer: dict[str, int], agents: list[str], roomy: list[str]
) -> tuple[StepPlan, ...]:
    """One to three steps that a step goes on as. `outer`: steps that they may read, by name."""
    steps: list[StepPlan] = []
    for number in range(rng.choice((1, 2, 2, 3))):
        needs = {each for each in range(number) if rng.random() < 0.6}
        caught = rng.choice(("fail", "fail", "continue"))
        step = _step(rng, number, needs, caught, -1, agents)
        reads = {name: each for name, each in outer.items() if rng.random() < 0.3}
        input = json.loads(step.input.replace(b"steps.s", f"steps.{prefix}".encode()))
        input |= {f"read-{name}": OUTPUT % name for name in reads}
        step = msgspec.structs.replace(
            step,
            name=f"{prefix}{number}",
            input=json.dumps(input).encode(),
            outer=tuple(reads.values()),
            dynamic=step.dynamic or bool(reads),
        )
        if rng.random() < 0.15:
            step = _waiting(rng, step, roomy)
        else:
            step = _richer(rng, step, _before([*steps, step], number), roomy)
        steps.append(step)
    return tuple(steps)


def _before(steps: list[StepPlan], number: int) -> tuple[int, ...]:
    """The steps that come before one, whatever lies between them."""
    found = set(steps[number].needs)
    for each in range(number - 1, -1, -1):
        if each in found:
            found |= set(steps[each].needs)
    return tuple(sorted(found))


def _waiting(rng: random.Random, step: StepPlan, roomy: list[str]) -> StepPlan:
    kind: Any = rng.choice(("wait", "signal", "signal", *(("ask", "ask") if roomy else ())))
    default = DEFAULT if kind != "wait" and rng.random() < 0.4 else None
    options = OPTIONS if kind == "ask" and rng.random() < 0.3 else ()
    if options and default is not None:
        default = b'"no"'
    input: Any = {"question": f"what about {step.name}?"}
    timeout_ms = rng.choice((1_000, 5_000, 30_000)) if default is not None or rng.random() < 0.3 else 0
    if kind == "wait":
        input, timeout_ms = rng.choice(SECONDS), 0
    return StepPlan(
        name=step.name,
        mailbox=rng.choice(roomy) if kind == "ask" else "",
        input=json.dumps(input).encode(),
        needs=step.needs,
        when=step.when,
        on_failure=step.on_failure,
        handler=step.handler,
        timeout_ms=timeout_ms,
        wait=WaitPlan(
            kind=kind,
            signal=rng.choice(SIGNALS) if kind == "signal" else "",
            options=options,
            default=default,
        ),
    )


def _richer(rng: random.Random, step: StepPlan, before: tuple[int, ...], roomy: list[str]) -> StepPlan:
    if rng.random() < 0.4 and not step.for_each:
        step = msgspec.structs.replace(step, grows=True, sees=before)
    if roomy and rng.random() < 0.65:
        input: dict[str, Any] = {"undo": step.name, "what": UNDONE}
        if step.for_each:
            input["item"] = ITEM
        undo = StepPlan(
            name=step.name,
            mailbox=rng.choice(roomy),
            input=json.dumps(input).encode(),
            dynamic=True,
            max_attempts=rng.choice((1, 2, 3)),
            max_abandoned=rng.choice((1, 10)),
            lease_ms=rng.choice((1_000, 2_000, 15_000)),
        )
        step = msgspec.structs.replace(step, undo=undo)
    return step


def document_of(steps: tuple[StepPlan, ...]) -> dict[str, Any]:
    """The same steps as an agent writes them."""
    return {step.name: _written(step, steps) for step in steps}


def _written(step: StepPlan, steps: tuple[StepPlan, ...]) -> dict[str, Any]:
    needs = [steps[each].name for each in step.needs]
    fields: dict[str, Any] = {"needs": needs, "on_failure": step.on_failure}
    if step.when:
        fields["when"] = "${{ " + step.when + " }}"
    if step.wait is not None:
        return fields | _written_wait(step, step.wait)
    if step.for_each:
        fields["for_each"] = "${{ " + step.for_each + " }}"
        fields |= {"parallel": step.parallel} if step.parallel else {}
    if step.undo is not None:
        fields["compensate"] = _written_work(step.undo)
    return fields | _written_work(step) | {"grows": step.grows}


def _written_work(step: StepPlan) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "agent": step.mailbox.partition("/")[2],
        "input": json.loads(step.input),
        "retry": {"max_attempts": step.max_attempts, "max_abandoned": step.max_abandoned},
        "lease": f"{step.lease_ms}ms",
        "priority": step.priority,
    }
    limits = {"attempt_timeout": step.attempt_timeout_ms, "timeout": step.timeout_ms}
    fields |= {name: f"{limit_ms}ms" for name, limit_ms in limits.items() if limit_ms}
    return fields if step.key is None else fields | {"key": step.key}


def _written_wait(step: StepPlan, wait: WaitPlan) -> dict[str, Any]:
    if wait.kind == "wait":
        return {"wait": json.loads(step.input)}
    fields: dict[str, Any] = {"signal": wait.signal}
    if wait.kind == "ask":
        fields = {"ask": step.mailbox.partition("/")[2], "question": json.loads(step.input)["question"]}
        fields |= {"options": list(wait.options)} if wait.options else {}
    if step.timeout_ms:
        fields["timeout"] = f"{step.timeout_ms}ms"
    return fields if wait.default is None else fields | {"default": json.loads(wait.default)}
