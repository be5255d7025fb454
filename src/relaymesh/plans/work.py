"""The work of an agent, as a step or `compensate` describes it: who does it, with what input, how often."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from relaymesh.errors import InvalidEnvelope, InvalidPlan
from relaymesh.kernel.address import agent_address, namespace_of
from relaymesh.kernel.bounds import TEXT_LENGTH_MAX, shown, whole
from relaymesh.kernel.tasks.plan import MAX_ATTEMPTS, STEP_LEASE_MS, WHOLE_BOUNDS, StepPlan
from relaymesh.plans.cel_text import OPENING, Malformed
from relaymesh.plans.duration import duration_ms
from relaymesh.plans.expressions import expressions_in
from relaymesh.plans.position import Position
from relaymesh.wire.envelope import check_text, parse_priority
from relaymesh.wire.near import Names

WORK_FIELDS = ("agent", "input", "timeout", "attempt_timeout", "lease", "retry", "priority", "key")
RETRY_FIELDS = ("max_attempts", "max_abandoned")


class StepDefaults(NamedTuple):
    """The defaults of a step."""

    max_attempts: int = MAX_ATTEMPTS
    lease_ms: int = STEP_LEASE_MS


PLAIN = StepDefaults()
Expressions = list[tuple[str, str]]
"""Expressions, each with the name of its field."""


def read_work(
    name: str,
    fields: dict[str, Any],
    position: Position,
    namespace: str,
    defaults: StepDefaults = PLAIN,
    done_by: StepPlan | None = None,
) -> tuple[StepPlan, Expressions]:
    """The step of an agent, and its expressions. `done_by`: the step whose agent does it if none is named."""
    if fields.get("agent") is None and done_by is not None:
        mailbox, capability = done_by.mailbox, done_by.capability
    else:
        capability = _capability(fields, position)
        mailbox = "" if capability else _mailbox(fields, position, namespace)
    value = fields.get("input")
    expressions = template(value, position.at("input"))
    given: dict[str, Any] = {"max_attempts": defaults.max_attempts, "lease_ms": defaults.lease_ms}
    given |= _retry(fields, position) | _numbers(fields, position)
    plan = StepPlan(
        name=name,
        mailbox=mailbox,
        capability=capability,
        input=msgspec.json.encode(value),
        dynamic=bool(expressions),
        key=_key(fields, position),
        **given,
    )
    return plan, expressions


def template(value: Any, position: Position) -> Expressions:
    """The expressions in a JSON value that stands at this position."""
    try:
        return [(position.field, each) for each in expressions_in(value)]
    except Malformed as error:
        position.refuse(str(error))


def address_of(agent: str, position: Position, namespace: str) -> str:
    """The address of an agent that is named, which must be in the namespace of the task."""
    if OPENING in agent:
        position.refuse("must be a name: expressions are not evaluated here")
    try:
        address = agent_address(agent if "/" in agent else f"{namespace}/{agent}", "agent")
    except InvalidEnvelope as error:
        position.refuse_error(error)
    if namespace_of(address) != namespace:
        position.refuse(f"{agent!r} is in another namespace than the task, which is in {namespace!r}")
    return address


def whole_within(value: Any, bound: str, position: Position, least: int | None = None) -> int:
    """A whole number within the kernel's bounds of this field."""
    low, high = WHOLE_BOUNDS[bound]
    try:
        return whole(value, "it", low if least is None else least, high, InvalidPlan)
    except InvalidPlan as error:
        position.refuse(error.message.removeprefix("it "))


def read_priority(value: Any, position: Position) -> int:
    try:
        return parse_priority(value)
    except InvalidEnvelope as error:
        position.refuse(error.message)


def _capability(fields: dict[str, Any], position: Position) -> str:
    """The capability that the agent must have; empty: the agent is named."""
    agent = fields.get("agent")
    if not isinstance(agent, dict):
        return ""
    for field in agent:
        if field != "capability":
            position.at("agent").unknown(field, Names(("capability",)), "capability")
    here = position.at("agent.capability")
    capability = agent.get("capability")
    if not isinstance(capability, str):
        here.refuse(f"must be a word, not {shown(capability)}", "write agent: {capability: WORD}")
    if OPENING in capability:
        here.refuse("must be a word: expressions are not evaluated here")
    try:
        return check_text(capability, "it")
    except InvalidEnvelope as error:
        here.refuse(error.message.removeprefix("it "))


def _mailbox(fields: dict[str, Any], position: Position, namespace: str) -> str:
    here = position.at("agent")
    agent = fields.get("agent")
    if not isinstance(agent, str):
        here.refuse(f"must be the name of an agent or {{capability: WORD}}, not {shown(agent)}")
    return address_of(agent, here, namespace)


def _retry(fields: dict[str, Any], position: Position) -> dict[str, int]:
    retry = fields.get("retry")
    if retry is None:
        return {}
    here = position.at("retry")
    if not isinstance(retry, dict):
        here.refuse(f"must be an object, not {shown(retry)}", "write retry: {max_attempts: 5}")
    for field in retry:
        if field not in RETRY_FIELDS:
            here.unknown(field, Names(RETRY_FIELDS), ", ".join(RETRY_FIELDS))
    return {field: whole_within(retry[field], field, position.at(f"retry.{field}")) for field in retry}


def _numbers(fields: dict[str, Any], position: Position) -> dict[str, int]:
    found = {}
    for field, name in (("timeout", "timeout_ms"), ("attempt_timeout", "attempt_timeout_ms")):
        if fields.get(field) is not None:
            found[name] = duration_ms(fields[field], position.at(field))
    if fields.get("lease") is not None:
        found["lease_ms"] = duration_ms(fields["lease"], position.at("lease"), WHOLE_BOUNDS["lease_ms"][0])
    if fields.get("priority") is not None:
        found["priority"] = read_priority(fields["priority"], position.at("priority"))
    return found


def _key(fields: dict[str, Any], position: Position) -> str | None:
    key = fields.get("key")
    if key is None:
        return None
    here = position.at("key")
    if not isinstance(key, str):
        here.refuse(f"must be text, not {shown(key)}")
    if not 1 <= len(key) <= TEXT_LENGTH_MAX:
        here.refuse(f"must have 1 to {TEXT_LENGTH_MAX} characters, not {len(key)}")
    if OPENING in key:
        here.refuse("must be plain text: expressions are not evaluated here")
    return key
