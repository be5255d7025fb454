"""Failure contracts: which error is tried again, how often, and where it ends.

A contract is a table from error code to `Rule`. Codes are words, not Python classes: the
SDK maps exception classes to codes at the edge. A code that has no row uses `other`.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import RETRIES_MAX, flag, one_of, whole

Exit = Literal["dead_letter", "drop", "success"]
EXITS: tuple[Exit, ...] = get_args(Exit)


class Rule(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What happens to a delivery that failed with one class of error."""

    retries: int
    """Retries after the first attempt. 0 means: never tried again, whatever the message says."""
    exit: Exit = "dead_letter"
    """Where it ends when no retry is left."""
    alert: bool = False
    """Whether a dead letter of this class is an alert of level error. Without it the alert is a warning."""

    def __post_init__(self) -> None:
        force_setattr(self, "retries", whole(self.retries, "retries", 0, RETRIES_MAX, InvalidSettings))
        force_setattr(self, "exit", one_of(self.exit, "exit", EXITS, InvalidSettings))
        force_setattr(self, "alert", flag(self.alert, "alert", InvalidSettings))


TIMEOUT = "timeout"
INVALID = "invalid"
RATE_LIMITED = "rate_limited"
CONFLICT = "conflict"
DUPLICATE = "duplicate"
FATAL = "fatal"
OTHER = "other"

DEFAULT_CONTRACT: dict[str, Rule] = {
    TIMEOUT: Rule(retries=3, alert=True),
    INVALID: Rule(retries=0),
    RATE_LIMITED: Rule(retries=5),
    CONFLICT: Rule(retries=0, exit="success"),
    DUPLICATE: Rule(retries=0, exit="success"),
    FATAL: Rule(retries=0, alert=True),
    OTHER: Rule(retries=3),
}

Contract = dict[str, Rule]


def rule_for(contract: Contract | None, code: str) -> Rule:
    """The row of `code`: the mailbox's own, else the default table's, else `other`."""
    if contract is not None:
        rule = contract.get(code)
        if rule is not None:
            return rule
    rule = DEFAULT_CONTRACT.get(code)
    if rule is not None:
        return rule
    return contract[OTHER] if contract is not None and OTHER in contract else DEFAULT_CONTRACT[OTHER]


def retry_limit(rule: Rule, message_retries: int | None, mailbox_retries: int | None) -> int:
    """How many retries this failure may have.

    A rule of 0 is final. Otherwise the message's own wish wins, then the mailbox's, then the rule.
    """
    if rule.retries == 0:
        return 0
    if message_retries is not None:
        return message_retries
    if mailbox_retries is not None:
        return mailbox_retries
    return rule.retries
