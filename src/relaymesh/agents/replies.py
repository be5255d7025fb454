"""What an agent without a model writes, as events and outcomes.

A form is a JSON object with the key `relaymesh`, which says what it is:

    {"relaymesh": "progress", "text": "half of it"}
    {"relaymesh": "usage", "cost_usd": 0.12, "tokens": 3400}          totals so far
    {"relaymesh": "tool", "name": "grep", "summary": "3 files"}
    {"relaymesh": "done", "value": {"any": "JSON"}}
    {"relaymesh": "continue", "steps": [{"name": "test", "agent": "tester"}]}
    {"relaymesh": "failed", "reason": "no such branch", "code": "no_branch"}   for good
    {"relaymesh": "retry", "reason": "busy", "after_s": 30}           or "until": a time; or neither: backoff
    {"relaymesh": "drop", "reason": "nothing to do"}

The last five end an attempt, and may carry "cost_usd" and "tokens".
"""

from __future__ import annotations

import signal
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from relaymesh.agents.adapter import (
    LOG_LINE_MAX,
    Done,
    Event,
    Failure,
    Grown,
    Outcome,
    Progress,
    Text,
    ToolUse,
    Used,
)
from relaymesh.errors import MeshError
from relaymesh.kernel.bounds import CODE_LENGTH_MAX
from relaymesh.kernel.contract import FATAL, INVALID, OTHER, RATE_LIMITED
from relaymesh.kernel.tasks.plan import USAGE_MAX
from relaymesh.sdk.endings import after_ms, until_ms
from relaymesh.wire.content import check_json, encode_content
from relaymesh.wire.usage import COST_USD_MAX

__all__ = [
    "FORM_KEY",
    "Form",
    "event_of",
    "form_of",
    "lines_as_text",
    "outcome_of_exit",
    "outcome_of_form",
    "outcome_of_output",
]

Kind = Literal["progress", "usage", "tool", "done", "continue", "failed", "retry", "drop"]
FORM_KEY = b'"relaymesh"'
EVENTS = frozenset({"progress", "usage", "tool"})
REASON_LENGTH_MAX = 2_000

Money = Annotated[float, msgspec.Meta(ge=0, le=COST_USD_MAX)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=USAGE_MAX)]


class Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One object that an agent wrote. The value of `relaymesh` decides which fields are used."""

    relaymesh: Kind
    id: str | None = None
    """The id of the work, from a worker that does several at once."""
    text: str = ""
    name: str = ""
    summary: str = ""
    value: msgspec.Raw = msgspec.Raw(b"null")
    steps: msgspec.Raw = msgspec.Raw(b"")
    reason: str = ""
    code: Annotated[str, msgspec.Meta(min_length=1, max_length=CODE_LENGTH_MAX)] | None = None
    after_s: float | None = None
    until: float | datetime | None = None
    cost_usd: Money | None = None
    tokens: Tokens | None = None

    @property
    def ends(self) -> bool:
        return self.relaymesh not in EVENTS

    @property
    def used(self) -> Used:
        return Used(self.cost_usd, self.tokens)


_decode_form = msgspec.json.Decoder(Form).decode
_decode_any = msgspec.json.Decoder().decode

EXITS: dict[int, tuple[str, bool]] = {
    65: (INVALID, True),
    69: (RATE_LIMITED, False),
    75: (OTHER, False),
    77: (FATAL, True),
    78: (FATAL, True),
    126: (FATAL, True),
    127: (FATAL, True),
}
"""Exit codes with a meaning of their own, as in sysexits.h: the failure code, and whether it is for good."""

FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that come from outside, not from an error of the process itself."""


def form_of(line: bytes) -> Form | None:
    """The form that a line holds; None if it holds none. Raises `ValueError` for a form that is wrong."""
    if FORM_KEY not in line or not line.lstrip().startswith(b"{"):
        return None
    try:
        found = _decode_any(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or "relaymesh" not in found:
        return None
    try:
        return _decode_form(line)
    except msgspec.MsgspecError as error:
        raise ValueError(f"a form is wrong: {error}") from None


def event_of(form: Form) -> Event:
    if form.relaymesh == "progress":
        return Progress(form.text[:LOG_LINE_MAX])
    if form.relaymesh == "tool":
        return ToolUse(form.name[:200], form.summary[:LOG_LINE_MAX])
    return form.used


def lines_as_text(line: bytes, stream: str) -> list[Text]:
    """A line as events of a bounded length."""
    pieces = [line[at : at + LOG_LINE_MAX] for at in range(0, len(line), LOG_LINE_MAX)]
    return [Text(piece.decode("utf-8", "replace"), stream) for piece in pieces]


def outcome_of_form(form: Form) -> Outcome:
    """The outcome in a form, or a failure if the form is wrong."""
    reason = form.reason[:REASON_LENGTH_MAX]
    try:
        if form.relaymesh == "done":
            return Done(check_json(bytes(form.value)), form.used)
        if form.relaymesh == "continue":
            if not bytes(form.steps):
                return _invalid("the form continue has no steps", form.used)
            return Grown(check_json(bytes(form.steps)), form.used)
        if form.relaymesh == "retry":
            after = None if form.after_s is None else after_ms(form.after_s)
            until = None if form.until is None else until_ms(form.until)
            return Failure(form.code or OTHER, reason or "try again", False, until, after, used=form.used)
    except MeshError as error:
        return _invalid(error.message, form.used)
    if form.relaymesh == "drop":
        return Failure(form.code or "dropped", reason or "dropped", drop=True, used=form.used)
    return Failure(form.code or "failed", reason or "no reason was given", final=True, used=form.used)


def outcome_of_output(output: bytes, used: Used) -> Outcome:
    """What a program that ended with 0 has written: a form, JSON, or text."""
    try:
        form = form_of(output)
    except ValueError as error:
        return _invalid(str(error), used)
    if form is not None:
        return (
            outcome_of_form(form) if form.ends else _invalid(f"the output is a {form.relaymesh} form", used)
        )
    stripped = output.strip()
    if not stripped:
        return Done(used=used)
    try:
        return Done(check_json(stripped), used)
    except MeshError as error:
        if stripped[:1] in {b"{", b"["}:
            return _invalid(f"the output begins as JSON: {error.message}", used)
    try:
        return Done(encode_content(output.decode().rstrip("\r\n"))[0], used)
    except UnicodeDecodeError:
        return _invalid("the output is neither JSON nor text in UTF-8", used)
    except MeshError as error:
        return _invalid(error.message, used)


def outcome_of_exit(code: int, output: bytes, said: str, used: Used) -> Outcome:
    """The outcome of a program by its exit code. `said`: the last part of its stderr."""
    if code == 0:
        return outcome_of_output(output, used)
    if code < 0:
        return _killed(-code, said, used)
    try:
        form = form_of(output)
    except ValueError:
        form = None
    if form is not None and form.ends and form.relaymesh not in {"done", "continue"}:
        return outcome_of_form(form)
    kind, final = EXITS.get(code, (OTHER, False))
    return Failure(kind, _reason(f"exit code {code}", said), final=final, used=used)


def _killed(number: int, said: str, used: Used) -> Failure:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number in FROM_OUTSIDE:
        return Failure("abandoned", f"it was ended by {name} from outside", abandoned=True, used=used)
    return Failure(OTHER, _reason(f"it crashed with {name}", said), used=used)


def _reason(what: str, said: str) -> str:
    return f"{what}: {said}"[:REASON_LENGTH_MAX] if said else what


def _invalid(reason: str, used: Used) -> Failure:
    return Failure(INVALID, reason[:REASON_LENGTH_MAX], final=True, used=used)
