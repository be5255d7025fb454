"""Workflows in Python: the builder makes the document that YAML would make.

    release = Workflow("release", deadline="90m", input={"repo": "string"})
    plan = release.step("plan", agent="planner", input={"goal": f"Release {release.input.repo}"})
    release.step("build", agent="builder", for_each=plan.output.targets, input={"target": release.item})
    release.ask("approve", agent="owner", question="Ship it?", options=["ship", "stop"], needs=["build"])

A reference stands for a value that is not known yet: it becomes `${{ … }}`, also inside an f-string. A step
that refers to another one needs it; the builder adds it to `needs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from relaymesh.errors import InvalidPlan
from relaymesh.kernel.address import DEFAULT_NAMESPACE
from relaymesh.kernel.bounds import ADDRESS_LENGTH_MAX, plain_text, shown, text
from relaymesh.kernel.tasks.plan import Plan
from relaymesh.plans.cel_text import Malformed, paths, written
from relaymesh.plans.document import compile_plan
from relaymesh.plans.expressions import expressions_in

_EXPRESSIONS = ("input", "question", "wait", "when", "for_each", "compensate")
"""The fields of a step that may hold expressions."""


class Reference:
    """A value that a step reads when it runs: `plan.output["targets"]`. Fields are attributes or items."""

    __slots__ = ("_parts",)

    def __init__(self, *parts: str | int) -> None:
        self._parts = parts

    def __getattr__(self, name: str) -> Reference:
        if name.startswith("__"):  # looked up by copy, pickle and others
            raise AttributeError(name)
        return Reference(*self._parts, name)

    def __getitem__(self, name: str | int) -> Reference:
        if type(name) is not str and (type(name) is not int or name < 0):
            raise InvalidPlan(f"{self}: a field is text or a number from 0 on, not {shown(name)}")
        return Reference(*self._parts, name)

    def __iter__(self) -> Any:
        raise TypeError(f"{self} is not known before its step runs: use it in for_each")

    def __bool__(self) -> bool:
        raise TypeError(f"{self} is not known before its step runs: use it in when")

    def __str__(self) -> str:
        return f"${{{{ {written(self._parts)} }}}}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


class Step:
    """A step of a workflow. `output` refers to its result."""

    __slots__ = ("name", "output")

    def __init__(self, name: str) -> None:
        self.name = name
        self.output = Reference("steps", name, "output")

    def __repr__(self) -> str:
        return f"Step({self.name!r})"


class Workflow:
    """A workflow under construction. Mistakes are found by `compile` and by a submit, not here.

    A step may read `input`, `item` and `index`; `compensate` may also read `output` and `uncertain`.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str | None = None,
        input: Mapping[str, str] | None = None,
        deadline: str | float | None = None,
        budget: Mapping[str, float] | None = None,
    ) -> None:
        given = {
            "workflow": name,
            "version": version,
            "input": input,
            "deadline": deadline,
            "budget": budget,
        }
        try:
            self._document = {field: _rendered(value) for field, value in given.items() if value is not None}
        except Exception:  # a value with methods of its own
            raise InvalidPlan(f"workflow {shown(name)}: one of its values cannot be read") from None
        self._steps: dict[str, dict[str, Any]] = {}
        self.input = Reference("input")
        self.item = Reference("item")
        self.index = Reference("index")
        self.output = Reference("output")
        self.uncertain = Reference("uncertain")

    def step(
        self,
        name: str,
        *,
        agent: str | Mapping[str, str],
        input: Any = None,
        needs: Sequence[Step | str] = (),
        when: Reference | str | None = None,
        for_each: Reference | str | None = None,
        parallel: int | None = None,
        timeout: str | float | None = None,
        attempt_timeout: str | float | None = None,
        lease: str | float | None = None,
        retry: Mapping[str, int] | None = None,
        priority: str | int | None = None,
        key: str | None = None,
        on_failure: Step | str | None = None,
        grows: bool | None = None,
        compensate: Mapping[str, Any] | None = None,
    ) -> Step:
        """Adds the work of an agent. Its fields are those of a document."""
        fields = {
            "agent": agent,
            "input": input,
            "when": when,
            "for_each": for_each,
            "parallel": parallel,
            "timeout": timeout,
            "attempt_timeout": attempt_timeout,
            "lease": lease,
            "retry": retry,
            "priority": priority,
            "key": key,
            "on_failure": on_failure,
            "grows": grows,
            "compensate": compensate,
        }
        return self._add(name, needs, fields)

    def ask(
        self,
        name: str,
        *,
        agent: str,
        question: Any,
        options: Sequence[str] | None = None,
        timeout: str | float | None = None,
        default: Any = UNSET,
        priority: str | int | None = None,
        needs: Sequence[Step | str] = (),
        when: Reference | str | None = None,
        for_each: Reference | str | None = None,
        on_failure: Step | str | None = None,
    ) -> Step:
        """Adds a question to an agent: its output is the answer. `default` is the output when the time is
        over."""
        fields = {
            "ask": agent,
            "question": question,
            "options": options,
            "timeout": timeout,
            "priority": priority,
            "when": when,
            "for_each": for_each,
            "on_failure": on_failure,
        }
        return self._add(name, needs, fields, default)

    def wait(
        self,
        name: str,
        duration: Reference | str | float | None = None,
        *,
        until: Reference | str | None = None,
        needs: Sequence[Step | str] = (),
        when: Reference | str | None = None,
        for_each: Reference | str | None = None,
        on_failure: Step | str | None = None,
    ) -> Step:
        """Adds a wait: for a duration such as "30s", or until a timestamp. It uses no agent."""
        fields = {
            "wait": duration if until is None else {"until": until},
            "when": when,
            "for_each": for_each,
            "on_failure": on_failure,
        }
        if (duration is None) == (until is None):
            raise InvalidPlan(f"{self._here}, step {shown(name)}, wait: give either a duration or until")
        return self._add(name, needs, fields)

    def signal(
        self,
        name: str,
        *,
        signal: str,
        timeout: str | float | None = None,
        default: Any = UNSET,
        needs: Sequence[Step | str] = (),
        when: Reference | str | None = None,
        for_each: Reference | str | None = None,
        on_failure: Step | str | None = None,
    ) -> Step:
        """Adds a wait for a signal from outside: its output is the signal's value."""
        fields = {
            "signal": signal,
            "timeout": timeout,
            "when": when,
            "for_each": for_each,
            "on_failure": on_failure,
        }
        return self._add(name, needs, fields, default)

    def include(
        self,
        name: str,
        *,
        workflow: str,
        input: Any = None,
        needs: Sequence[Step | str] = (),
        when: Reference | str | None = None,
        for_each: Reference | str | None = None,
        parallel: int | None = None,
        on_failure: Step | str | None = None,
    ) -> Step:
        """Adds a step that runs the steps of a stored workflow, "release" or "release@3"."""
        fields = {
            "workflow": workflow,
            "input": input,
            "when": when,
            "for_each": for_each,
            "parallel": parallel,
            "on_failure": on_failure,
        }
        return self._add(name, needs, fields)

    def _add(self, name: Any, needs: Any, fields: Mapping[str, Any], default: Any = UNSET) -> Step:
        name = plain_text(name, f"{self._here}: the name of a step", InvalidPlan)
        if not issubclass(type(needs), (list, tuple)):
            raise InvalidPlan(
                f"{self._here}, step {shown(name)}, needs: must be a list of steps, not {shown(needs)}"
            )
        if name in self._steps:
            raise InvalidPlan(f"{self._here}, steps: two steps have the name {shown(name)}")
        try:
            step = _written(fields, needs, self._steps)
            if default is not UNSET:
                step["default"] = _rendered(default)
        except Exception:  # a value with methods of its own
            raise InvalidPlan(f"{self._here}, step {shown(name)}: one of its values cannot be read") from None
        self._steps[name] = step
        return Step(name)

    @property
    def _here(self) -> str:
        return f"workflow {shown(self._document.get('workflow'))}"

    def document(self) -> dict[str, Any]:
        """The document, as YAML or JSON would give it."""
        try:
            return _rendered({**self._document, "steps": self._steps})  # type: ignore[no-any-return]
        except RecursionError:
            raise InvalidPlan(f"{self._here}: its values are nested too deeply") from None
        except Exception:  # a value with methods of its own
            raise InvalidPlan(f"{self._here}: one of its values cannot be read") from None

    def compile(self, namespace: str = DEFAULT_NAMESPACE) -> Plan:
        """The plan of this workflow. Raises `InvalidPlan`, in one line."""
        checked = text(namespace, "namespace", 1, ADDRESS_LENGTH_MAX, InvalidPlan)
        return compile_plan(self.document(), checked)


def _written(
    fields: Mapping[str, Any], needs: Sequence[Step | str], known: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a step in the form of a document."""
    step = {field: _rendered(value) for field, value in fields.items() if value is not None}
    named = dict.fromkeys([*map(_rendered, needs), *_read_steps(step, known)])
    if named:
        step["needs"] = list(named)
    return step


def _rendered(value: Any) -> Any:
    """The value with references and steps written out, tuples as lists, mappings as dicts, plain texts."""
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, Step):
        return value.name
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {_rendered(key): _rendered(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rendered(part) for part in value]
    return value


def _read_steps(fields: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """The known steps that a step's expressions read. The compiler reports the unknown ones."""
    try:
        texts = expressions_in([fields.get(field) for field in _EXPRESSIONS])
    except Malformed:
        return []
    read = [path.parts for text in texts for path in paths(text)]
    return [str(parts[1]) for parts in read if len(parts) > 1 and parts[0] == "steps" and parts[1] in known]
