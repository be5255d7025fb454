"""How a handler ends: it returns, or raises one of these or any other exception.

    return          acked; the value is the result of a step, `Result(value, usage=…)` too
    Continue(steps) a step goes on as more steps
    Retry           tried again later; with `until=` no attempt is counted
    Reject          dead-lettered now
    Drop            acked, and counted as dropped
    Failed          a step of a task fails for good; any other message: dead-lettered now
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

from relaymesh.errors import InvalidSettings, InvalidValue
from relaymesh.kernel.bounds import (
    CODE_LENGTH_MAX,
    DURATION_MS_MAX,
    RETRIES_MAX,
    real,
    shown,
    sound,
    text,
    whole,
)
from relaymesh.kernel.commands import Nack
from relaymesh.kernel.contract import (
    DEFAULT_CONTRACT,
    FATAL,
    INVALID,
    OTHER,
    RATE_LIMITED,
    TIMEOUT,
    Contract,
    Rule,
)
from relaymesh.wire.usage import usage_of

HTTP_TOO_MANY_REQUESTS = 429


class Ending(Exception):
    """What a handler may raise to choose how its delivery ends."""


class Retry(Ending):
    """Try again: after `after` seconds, or by the mailbox's backoff. With `until` no attempt is counted.

    In a contract, `times` is the maximum number of retries: the smaller of `times` and `max_retries` counts.
    `after` is the delay before each of them.
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
        self.checked()

    def checked(self) -> tuple[int | None, int | None]:
        """`after` and `until` in milliseconds. Raises `InvalidValue` for a value that is not a time."""
        if self.times is not None:
            whole(self.times, "times", 0, RETRIES_MAX)
        delay_ms = None if self.after is None else after_ms(self.after)
        return delay_ms, None if self.until is None else until_ms(self.until)


class Reject(Ending):
    """Do not try again: make it a dead letter at once."""


class Drop(Ending):
    """Nothing to do: acked, and counted as dropped."""


class Failed(Reject):
    """A step of a task has failed for good: an outcome, which its plan may catch. It is not tried again.

    For a message that is no step it means `Reject`.
    """

    def __init__(
        self, reason: str = "", *, code: str = "failed", usage: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(reason)
        self.code = text(code, "code", 1, CODE_LENGTH_MAX)
        self.usage = usage_of(usage)


ContractSpec = Mapping[type[BaseException] | str, type[Ending] | Ending | Rule]


class FailureTable:
    """The contract of one mailbox in the SDK: it maps exceptions to error codes."""

    def __init__(self, spec: ContractSpec | None = None) -> None:
        self._classes: list[tuple[type[BaseException], str]] = []
        self.rules: Contract = {}
        if spec is None:
            return
        try:
            rows = list(spec.items())
        except Exception:  # not a mapping, or one that cannot be read
            raise InvalidSettings(
                f"contract must map exceptions to how they end, not {shown(spec)}"
            ) from None
        for key, ending in rows:
            code = _code(key)
            if isinstance(key, type):
                self._classes.append((key, code))
            self.rules[code] = _rule(key, ending)

    def code_of(self, error: BaseException) -> str:
        """The best matching row: the nearest class in the contract, else the default classes."""
        for kind in type(error).__mro__:
            for known, code in self._classes:
                if known is kind:
                    return code
        try:
            return default_code(error)
        except Exception:  # an attribute of the exception raises
            return OTHER

    def nack(self, token: int, error: BaseException) -> Nack:
        """The failure to report to the kernel for this exception."""
        reason = text_of(error) or type(error).__name__
        if isinstance(error, Retry):
            try:
                return Nack(token, OTHER, reason, "", True, *error.checked())
            except InvalidValue as wrong:  # the Retry was changed after it was made
                return Nack(token, OTHER, f"{reason}: {wrong.message}", stack_of(error))
        if isinstance(error, Reject):
            return Nack(token, INVALID, reason, stack_of(error), retryable=False)
        return Nack(token, self.code_of(error), f"{type(error).__name__}: {reason}", stack_of(error))


def _code(key: object) -> str:
    """The error code of a row: its own name, or that of the exception class."""
    if isinstance(key, type) and issubclass(key, BaseException):
        name = key.__name__ if key.__module__ == "builtins" else f"{key.__module__}.{key.__name__}"
        return sound(name)[-CODE_LENGTH_MAX:]
    if isinstance(key, str):
        return text(key, "an error code of the contract", 1, CODE_LENGTH_MAX, InvalidSettings)
    raise InvalidSettings(f"the contract names {shown(key)}; name an exception class or an error code")


def _rule(key: object, ending: type[Ending] | Ending | Rule) -> Rule:
    if isinstance(ending, Rule):
        return Rule(ending.retries, ending.exit, ending.alert, ending.after_ms, ending.default)
    if isinstance(ending, Retry):
        return _retrying(key, ending)
    if ending is Retry:
        return DEFAULT_CONTRACT[OTHER]
    if isinstance(ending, Reject) or ending is Reject:
        return Rule(retries=0)
    if isinstance(ending, Drop) or ending is Drop:
        return Rule(retries=0, exit="drop")
    raise InvalidSettings(
        f"the contract maps {shown(key)} to {shown(ending)}; it must be Retry, Reject, Drop or a Rule"
    )


def _retrying(key: object, retry: Retry) -> Rule:
    try:
        after_ms, until = retry.checked()
    except InvalidValue as wrong:  # the Retry was changed after it was made
        raise InvalidSettings(f"the contract maps {shown(key)} to a Retry: {wrong.message}") from None
    if until is not None:
        raise InvalidSettings(
            f"the contract maps {shown(key)} to Retry(until=...), but a moment comes only once",
            hint="use Retry(after=...) in the contract, or raise Retry(until=...) in the handler",
        )
    rule = DEFAULT_CONTRACT[OTHER]
    if retry.times is not None:
        rule = Rule(retry.times)
    return rule if after_ms is None else msgspec.structs.replace(rule, after_ms=after_ms)


def default_code(error: BaseException) -> str:
    """The error code of an exception that is not in the contract."""
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
    """pydantic, marshmallow, jsonschema and others use this name; none of them is imported here."""
    return any(kind.__name__ == "ValidationError" for kind in type(error).__mro__)


def text_of(error: BaseException) -> str:
    """The text of the exception. If `str` raises, a note in its place: the nack must not fail."""
    try:
        return sound(str.__str__(str(error)))
    except Exception as failure:
        return f"its text cannot be shown: {type(failure).__name__}"


def stack_of(error: BaseException) -> str:
    """The traceback. The nack cuts it when it is long."""
    try:
        return sound("".join(traceback.format_exception(error)))
    except Exception as failure:
        return f"its traceback cannot be shown: {type(failure).__name__}"


def after_ms(after: float) -> int:
    """A delay in seconds as milliseconds."""
    return int(real(after, "after (in seconds)", 0.0, DURATION_MS_MAX / 1000) * 1000)


def until_ms(until: datetime | float) -> int:
    """A time as mesh time: a datetime, or seconds since 1970."""
    if isinstance(until, datetime):
        try:
            until = until.timestamp()
        except (OverflowError, OSError, ValueError) as error:
            raise InvalidValue(f"until {shown(until)} is not a valid time: {error}") from None
    return int(real(until, "until (a datetime, or seconds since 1970)", 0.0, DURATION_MS_MAX / 1000) * 1000)
