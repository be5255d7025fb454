"""How a handler ends: by returning, or by raising one of these, or anything else.

    return          acked
    Retry           tried again later; with `until=` it burns no attempt
    Reject          dead-lettered now
    Drop            acked, and counted as dropped
    anything else   by the failure contract of the mailbox

A contract maps exception classes (or error codes) to these, as `contract={ValueError: Reject,
TimeoutError: Retry(times=5)}`.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.commands import Nack
from relaymesh.kernel.contract import FATAL, INVALID, OTHER, RATE_LIMITED, TIMEOUT, Contract, Rule

STACK_CHARACTERS_MAX = 8_000
REASON_CHARACTERS_MAX = 2_000
HTTP_TOO_MANY_REQUESTS = 429


class Outcome(Exception):
    """What a handler may raise to say how its delivery ends."""


class Retry(Outcome):
    """Try again: after `after` seconds, or by the mailbox's backoff. `until` burns no attempt.

    In a contract, `times` is how often.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        after: float | None = None,
        until: datetime | float | None = None,
        times: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.after = after
        self.until = until
        self.times = times


class Reject(Outcome):
    """Never again: a dead letter at once."""


class Drop(Outcome):
    """Nothing to do: acked, and counted as dropped."""


ContractSpec = Mapping[type[BaseException] | str, type[Outcome] | Outcome | Rule]


class FailureTable:
    """The contract of one mailbox as the SDK applies it: exception to error code."""

    def __init__(self, spec: ContractSpec | None = None) -> None:
        self._classes: list[tuple[type[BaseException], str]] = []
        self.rules: Contract = {}
        for key, ending in (spec or {}).items():
            code = key if isinstance(key, str) else _name(key)
            if not isinstance(key, str):
                self._classes.append((key, code))
            self.rules[code] = _rule(key, ending)

    def code_of(self, error: BaseException) -> str:
        """The row that fits best: the nearest class in the contract, else the default classes."""
        for kind in type(error).__mro__:
            for known, code in self._classes:
                if known is kind:
                    return code
        return default_code(error)

    def nack(self, token: int, error: BaseException) -> Nack:
        """How the kernel is told of this exception."""
        reason = str(error)[:REASON_CHARACTERS_MAX] or type(error).__name__
        if isinstance(error, Retry):
            delay_ms = None if error.after is None else int(error.after * 1000)
            until = None if error.until is None else until_ms(error.until)
            return Nack(token, OTHER, reason, "", True, delay_ms, until)
        if isinstance(error, Reject):
            return Nack(token, INVALID, reason, stack_of(error), retryable=False)
        return Nack(token, self.code_of(error), f"{type(error).__name__}: {reason}", stack_of(error))


def _name(kind: type[BaseException]) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _rule(key: object, ending: type[Outcome] | Outcome | Rule) -> Rule:
    if isinstance(ending, Rule):
        return ending
    if isinstance(ending, Retry):
        return Rule(retries=3 if ending.times is None else ending.times)
    if ending is Retry:
        return Rule(retries=3)
    if isinstance(ending, Reject) or ending is Reject:
        return Rule(retries=0)
    if isinstance(ending, Drop) or ending is Drop:
        return Rule(retries=0, exit="drop")
    raise InvalidSettings(
        f"the contract maps {key!r} to {ending!r}; it must be Retry, Reject, Drop or a Rule"
    )


def default_code(error: BaseException) -> str:
    """The class of an exception nobody spoke about."""
    if isinstance(error, (MemoryError, RecursionError)):
        return FATAL
    if isinstance(error, (TimeoutError, ConnectionError)):
        return TIMEOUT
    if isinstance(error, (msgspec.ValidationError, json.JSONDecodeError)) or _is_validation(error):
        return INVALID
    status = getattr(error, "status_code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    return RATE_LIMITED if status == HTTP_TOO_MANY_REQUESTS else OTHER


def _is_validation(error: BaseException) -> bool:
    """pydantic, marshmallow, jsonschema and others call it so; none of them is imported here."""
    return any(kind.__name__ == "ValidationError" for kind in type(error).__mro__)


def stack_of(error: BaseException) -> str:
    """The traceback, its end kept when it is long."""
    return "".join(traceback.format_exception(error))[-STACK_CHARACTERS_MAX:]


def until_ms(until: datetime | float) -> int:
    """A moment as mesh time: a datetime, or seconds since 1970."""
    seconds: Any = until.timestamp() if isinstance(until, datetime) else until
    return int(seconds * 1000)
