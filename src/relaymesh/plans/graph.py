"""Shows a plan as a text of levels, or as a Mermaid flowchart.

In the flowchart, each kind of step has its own shape: work is a box, a question a hexagon, a wait a rounded
box, a signal a flag, an included workflow a box with double sides, a compensation a slanted box.
"""

from __future__ import annotations

import msgspec

from relaymesh.kernel.tasks.plan import Plan, StepPlan

_SHAPES = {
    "work": ("[", "]"),
    "ask": ("{{", "}}"),
    "wait": ("([", "])"),
    "signal": (">", "]"),
    "workflow": ("[[", "]]"),
    "undo": ("[/", "/]"),
}


def levels(plan: Plan) -> list[list[int]]:
    """The numbers of the steps, by level: each step is one level below the lowest step that it needs."""
    level: list[int] = []
    found: list[list[int]] = []
    for number, step in enumerate(plan.steps):
        level.append(1 + max([level[need] for need in step.needs], default=-1))
        if level[number] == len(found):
            found.append([])
        found[level[number]].append(number)
    return found


def text_tree(plan: Plan) -> str:
    """The plan as text: its levels, and under each its steps with agent and needs."""
    lines = [f"{plan.name} {plan.version}".rstrip()]
    for depth, numbers in enumerate(levels(plan), 1):
        lines.append(f"  level {depth}")
        lines += [f"    {_described(plan, plan.steps[number])}" for number in numbers]
    return "\n".join(lines)


def mermaid(plan: Plan) -> str:
    """The plan as a Mermaid flowchart. Nodes have numbers as ids, because names may be Mermaid's words."""
    lines = ["flowchart TD"]
    for number, step in enumerate(plan.steps):
        each = ["for each"] if step.for_each else []
        lines.append(_node(f"s{number}", kind_of(step), [step.name, doing(step), *each]))
        if step.undo is not None:
            lines.append(_node(f"u{number}", "undo", [f"undo {step.name}", doing(step.undo)]))
    for number, step in enumerate(plan.steps):
        for need in step.needs:
            handled = plan.steps[need].handler == number
            lines.append(
                f"    s{need} -. on failure .-> s{number}" if handled else f"    s{need} --> s{number}"
            )
        if step.undo is not None:
            lines.append(f"    s{number} -. compensate .-> u{number}")
    return "\n".join(lines)


def kind_of(step: StepPlan) -> str:
    """The kind of a step: `work`, `ask`, `wait`, `signal` or `workflow`."""
    if step.include:
        return "workflow"
    return "work" if step.wait is None else step.wait.kind


def doing(step: StepPlan) -> str:
    """For people: the agent that works or is asked, the time, or the signal of a step."""
    if step.include:
        return f"workflow {step.include}"
    if step.wait is None:
        return step.who
    if step.wait.kind == "ask":
        return f"asks {step.who}"
    if step.wait.kind == "signal":
        return f"waits for signal {step.wait.signal}"
    time = msgspec.json.decode(step.input)
    if step.dynamic:
        return "waits for a time that an expression gives"
    return f"waits until {time}" if isinstance(time, str) else f"waits {time}s"


def _node(id: str, kind: str, lines: list[str]) -> str:
    opening, closing = _SHAPES[kind]
    return f'    {id}{opening}"{"<br/>".join(map(_escaped, lines))}"{closing}'


def _described(plan: Plan, step: StepPlan) -> str:
    parts = [f"{step.name} ({doing(step)})"]
    if step.needs:
        parts.append(f"needs {', '.join([plan.steps[need].name for need in step.needs])}")
    if step.when:
        parts.append("conditional")
    if step.for_each:
        parts.append(f"for each, {step.parallel} at once" if step.parallel else "for each")
    if step.grows:
        parts.append("may grow")
    if step.undo is not None:
        parts.append(f"undone by {doing(step.undo)}")
    if step.on_failure == "handle":
        parts.append(f"on failure {plan.steps[step.handler].name}")
    elif step.on_failure == "continue":
        parts.append("on failure continue")
    return "; ".join(parts)


def _escaped(text: str) -> str:
    """Text for a quoted Mermaid label: all but letters, digits and plain signs become entities."""
    return "".join([each if each.isalnum() or each in " _.-" else f"#{ord(each)};" for each in text])
