"""Steps that wait instead of working: for an answer, a time or a signal."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.kernel.bounds import TEXT_LENGTH_MAX, shown
from relaymesh.kernel.tasks.plan import (
    OPTIONS_MAX,
    SIGNAL_BYTES_MAX,
    StepPlan,
    WaitPlan,
)
from relaymesh.plans.cel_text import OPENING, Malformed, bare
from relaymesh.plans.duration import duration_ms
from relaymesh.plans.moment import moment_ms
from relaymesh.plans.naming import NAME_HINT, is_name
from relaymesh.plans.position import Position
from relaymesh.plans.work import Expressions, address_of, read_priority, template
from relaymesh.wire.near import Names

_UNTIL = 'write wait: {until: "2026-11-20T07:00:00Z"}'


def read_ask(
    name: str, fields: dict[str, Any], position: Position, namespace: str
) -> tuple[StepPlan, Expressions]:
    """A question to an agent. The step's input is the question with its options."""
    here = position.at("ask")
    asked = fields["ask"]
    if not isinstance(asked, str):
        here.refuse(f"must be the name of an agent, not {shown(asked)}")
    mailbox = address_of(asked, here, namespace)
    question = fields.get("question")
    if question is None:
        position.at("question").refuse("the question is missing", "add question: TEXT")
    expressions = template(question, position.at("question"))
    options = _options(fields, position)
    timeout_ms, default = _time_and_default(fields, position)
    if options and default is not None and fields["default"] not in options:
        position.at("default").refuse(
            f"{shown(fields['default'])} is none of the options", f"use one of: {', '.join(options)[:200]}"
        )
    plan = StepPlan(
        name=name,
        mailbox=mailbox,
        input=msgspec.json.encode({"question": question, "options": options}),
        dynamic=bool(expressions),
        timeout_ms=timeout_ms,
        wait=WaitPlan(kind="ask", options=tuple(options), default=default),
    )
    if fields.get("priority") is not None:
        priority = read_priority(fields["priority"], position.at("priority"))
        plan = msgspec.structs.replace(plan, priority=priority)
    return plan, expressions


def read_wait(name: str, fields: dict[str, Any], position: Position, _: str) -> tuple[StepPlan, Expressions]:
    """A wait for a time. The step's input is a number of seconds, or a timestamp."""
    given = fields["wait"]
    value: str | float
    expressions: Expressions = []
    if isinstance(given, dict):
        value, expressions = _until(given, position)
    elif isinstance(given, str) and OPENING in given:
        value, expressions = given, _one_expression(given, position.at("wait"))
    else:
        if isinstance(given, str) and moment_ms(given) is not None:
            position.at("wait").refuse(f"{shown(given)} is no duration", _UNTIL)
        ms = duration_ms(given, position.at("wait"))
        value = ms // 1000 if ms % 1000 == 0 else ms / 1000
    plan = StepPlan(
        name=name,
        mailbox="",
        input=msgspec.json.encode(value),
        dynamic=bool(expressions),
        wait=WaitPlan(kind="wait"),
    )
    return plan, expressions


def read_signal(
    name: str, fields: dict[str, Any], position: Position, _: str
) -> tuple[StepPlan, Expressions]:
    """A wait for a signal from outside."""
    signal = fields["signal"]
    if not is_name(signal):
        position.at("signal").refuse(f"{shown(signal)} is no name of a signal", NAME_HINT)
    timeout_ms, default = _time_and_default(fields, position)
    wait = WaitPlan(kind="signal", signal=signal, default=default)
    return StepPlan(name=name, mailbox="", timeout_ms=timeout_ms, wait=wait), []


def _until(given: dict[str, Any], position: Position) -> tuple[str, Expressions]:
    for field in given:
        if field != "until":
            position.at("wait").unknown(field, Names(("until",)), "until")
    here = position.at("wait.until")
    until = given.get("until")
    if not isinstance(until, str):
        here.refuse(f"must be a timestamp as text, not {shown(until)}", _UNTIL)
    expressions = template(until, here)
    if not expressions and moment_ms(until) is None:
        here.refuse(
            f"{shown(until)} is no timestamp of RFC 3339 with an offset, from 1970 on",
            "write 2026-11-20T07:00:00Z or 2026-11-20T08:00:00+01:00",
        )
    return until, expressions


def _one_expression(text: str, position: Position) -> Expressions:
    try:
        return [(position.field, bare(text))]
    except Malformed as error:
        position.refuse(f"{error}, not {shown(text)}" if str(error).startswith("must") else str(error))


def _options(fields: dict[str, Any], position: Position) -> list[str]:
    options = fields.get("options")
    if options is None:
        return []
    here = position.at("options")
    if not isinstance(options, list):
        here.refuse(f"must be a list of texts, not {shown(options)}")
    if not 1 <= len(options) <= OPTIONS_MAX:
        here.refuse(f"must have 1 to {OPTIONS_MAX} options, not {len(options)}")
    seen: set[str] = set()
    for option in options:
        if not isinstance(option, str):
            hint = "quote it" if isinstance(option, (bool, int, float)) else None
            here.refuse(f"must be a list of texts; {shown(option)} is none", hint)
        if not 1 <= len(option) <= TEXT_LENGTH_MAX:
            here.refuse(f"an option must have 1 to {TEXT_LENGTH_MAX} characters, not {len(option)}")
        if OPENING in option:
            here.refuse("options must be plain texts: expressions are not evaluated here")
        if option in seen:
            here.refuse(f"names {shown(option)} twice")
        seen.add(option)
    return list(options)


def _time_and_default(fields: dict[str, Any], position: Position) -> tuple[int, bytes | None]:
    """The time limit of the wait, and the JSON that is the output after it; None: the step times out."""
    timeout = fields.get("timeout")
    timeout_ms = 0 if timeout is None else duration_ms(timeout, position.at("timeout"))
    if "default" not in fields:
        return timeout_ms, None
    here = position.at("default")
    if not timeout_ms:
        here.refuse("a default counts when the time is over, and there is no timeout", "add timeout: 8h")
    default = msgspec.json.encode(fields["default"])
    if OPENING.encode() in default:
        here.refuse("must be plain JSON: expressions are not evaluated here")
    if len(default) > SIGNAL_BYTES_MAX:
        here.refuse(f"has {len(default)} bytes as JSON; {SIGNAL_BYTES_MAX} are allowed")
    return timeout_ms, default
