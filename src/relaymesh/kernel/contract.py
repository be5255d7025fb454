"""Failure contracts: which error is tried again, how often, and where it ends.

A contract is a table from error code to `Rule`. Codes are words, not Python classes: the SDK maps exception
classes to codes at the edge. Case does not matter: `RATE_LIMITED`, as the Mailbox protocol writes it, and
`rate_limited` are the same code. A code without a row uses `other`.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import DURATION_MS_MAX, RETRIES_MAX, flag, one_of, whole

Exit = Literal["dead_letter", "drop", "success"]
EXITS: tuple[Exit, ...] = get_args(Exit)


class Rule(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What happens to a delivery that failed with one class of error."""

    retries: int
    """Retries after the first attempt. 0: never tried again, whatever the message says."""
    exit: Exit = "dead_letter"
    """What happens when no retry is left."""
    alert: bool = False
    """Whether a dead letter of this class is logged as an error. If False, it is logged as a warning."""
    after_ms: int | None = None
    """Delay before each retry; None: the mailbox's backoff."""
    default: bool = False
    """`retries` counts only where neither the message nor the mailbox has `max_retries`. If False, the
    smaller of the two counts."""

    def __post_init__(self) -> None:
        force_setattr(self, "retries", whole(self.retries, "retries", 0, RETRIES_MAX, InvalidSettings))
        force_setattr(self, "exit", one_of(self.exit, "exit", EXITS, InvalidSettings))
        force_setattr(self, "alert", flag(self.alert, "alert", InvalidSettings))
        if self.after_ms is not None:
            after_ms = whole(self.after_ms, "after_ms", 0, DURATION_MS_MAX, InvalidSettings)
            force_setattr(self, "after_ms", after_ms)
        force_setattr(self, "default", flag(self.default, "default", InvalidSettings))


TIMEOUT = "timeout"
INVALID = "invalid"
RATE_LIMITED = "rate_limited"
CONFLICT = "conflict"
DUPLICATE = "duplicate"
FATAL = "fatal"
OTHER = "other"
INVALID_MESSAGE = "invalid_message"
TASK_NOT_FOUND = "task_not_found"
UNAUTHORIZED = "unauthorized"
"""These three come from the Mailbox protocol: the same message can never succeed."""

TTL_EXPIRED = "ttl_expired"
MAILBOX_FULL = "mailbox_full"
"""These two end a message that no holder failed: no row is asked."""

DEFAULT_CONTRACT: dict[str, Rule] = {
    TIMEOUT: Rule(retries=3, alert=True, default=True),
    INVALID: Rule(retries=0),
    RATE_LIMITED: Rule(retries=5, default=True),
    CONFLICT: Rule(retries=0, exit="success"),
    DUPLICATE: Rule(retries=0, exit="success"),
    FATAL: Rule(retries=0, alert=True),
    INVALID_MESSAGE: Rule(retries=0),
    TASK_NOT_FOUND: Rule(retries=0),
    UNAUTHORIZED: Rule(retries=0),
    OTHER: Rule(retries=3, default=True),
}

Contract = dict[str, Rule]


def rule_for(contract: Contract | None, code: str) -> Rule:
    """The row of `code`: the mailbox's own, else the default table's, else `other`. Case does not matter."""
    if contract is not None:
        rule = contract.get(code) or contract.get(code.lower()) or contract.get(code.upper())
        if rule is not None:
            return rule
    rule = DEFAULT_CONTRACT.get(code.lower())
    if rule is not None:
        return rule
    return contract[OTHER] if contract is not None and OTHER in contract else DEFAULT_CONTRACT[OTHER]


def retry_limit(rule: Rule, message_retries: int | None, mailbox_retries: int | None) -> int:
    """How many retries this failure may have.

    A rule of 0 is final. Otherwise `max_retries` of the message counts, else that of the mailbox; a rule that
    is not a default is the upper bound.
    """
    if rule.retries == 0:
        return 0
    asked = mailbox_retries if message_retries is None else message_retries
    if asked is None:
        return rule.retries
    return asked if rule.default else min(asked, rule.retries)
