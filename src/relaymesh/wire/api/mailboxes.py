"""Mailboxes and subscriptions: opening them, their settings, and what is done to what they hold."""

from __future__ import annotations

from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import DURATION_MS_MAX
from relaymesh.kernel.contract import Exit, Rule
from relaymesh.kernel.settings import MailboxSettings, ScheduleName
from relaymesh.wire.api.base import Address, Answer, CorrelationId, Message, Request, Time
from relaymesh.wire.api.node import MailboxStatsBody

PEEK_MAX = 1_000


class RuleBody(Request, frozen=True):
    """One row of a failure contract."""

    retries: Annotated[int, Meta(description="Retries after the first attempt.", ge=0, le=1_000_000)]
    exit: Annotated[Exit, Meta(description="Where it ends when no retry is left.")] = "dead_letter"
    alert: Annotated[bool, Meta(description="Log its dead letters as errors, not as warnings.")] = False
    after_ms: (
        Annotated[
            int, Meta(description="Delay before each retry; null: the backoff.", ge=0, le=DURATION_MS_MAX)
        ]
        | None
    ) = None
    default: Annotated[
        bool,
        Meta(description="Whether maxRetries replaces `retries`; if not, the smaller counts."),
    ] = False


def _setting_types() -> list[tuple[str, Any, Any]]:
    types: dict[str, Any] = {**get_type_hints(MailboxSettings), "contract": dict[str, RuleBody] | None}
    return [(name, types[name] | UnsetType, UNSET) for name in MailboxSettings.__struct_fields__]


MailboxSettingsBody: Any = msgspec.defstruct(
    "MailboxSettingsBody",
    _setting_types(),
    bases=(Request,),
    frozen=True,
    kw_only=True,
    namespace={
        "__doc__": "Settings of a mailbox; one that is left out has its default (docs/reference/settings.md)."
    },
    module=__name__,
)
"""The same names as `MailboxSettings`, in camelCase, all optional."""


def settings_from(body: Any, *, schedule: ScheduleName = "weighted") -> MailboxSettings:
    """Checked settings; `schedule` where the body names none."""
    given = {
        name: value
        for name in MailboxSettings.__struct_fields__
        if (value := getattr(body, name)) is not UNSET
    }
    given.setdefault("schedule", schedule)
    contract = given.get("contract")
    if contract is not None:
        given["contract"] = {
            code: Rule(rule.retries, rule.exit, rule.alert, rule.after_ms, rule.default)
            for code, rule in contract.items()
        }
    for name, value in given.items():
        if isinstance(value, int) and value > 1 << 53:
            raise InvalidSettings(f"{name} must be at most {1 << 53}, not {value}")
    return MailboxSettings(**given)


def settings_body(settings: MailboxSettings) -> Any:
    """Every setting, said out loud."""
    contract = settings.contract
    rules = (
        None
        if contract is None
        else {
            code: RuleBody(**{name: getattr(rule, name) for name in Rule.__struct_fields__})
            for code, rule in contract.items()
        }
    )
    values = {name: getattr(settings, name) for name in MailboxSettings.__struct_fields__}
    return MailboxSettingsBody(**{**values, "contract": rules})


class OpenMailboxRequest(Request, frozen=True):
    """Open a mailbox. Without settings one that exists is left as it is."""

    settings: MailboxSettingsBody | None = None


class MailboxAnswer(Answer, frozen=True):
    """The mailbox is there."""

    mailbox: Address


class SubscribeRequest(Request, frozen=True):
    """Subscribe. A subscription is `fifo` where its settings do not say otherwise."""

    settings: MailboxSettingsBody | None = None


class SubscriptionAnswer(Answer, frozen=True):
    """The subscription is there: receive from its mailbox."""

    mailbox: Address
    topic: Annotated[str, Meta(description="The topic or pattern, with its namespace.")]
    name: str


class DroppedAnswer(Answer, frozen=True):
    """The subscription is gone."""

    dropped: Annotated[int, Meta(description="Messages it still held.")]


class EntryBody(Answer, frozen=True):
    """A message that waits or is out, without taking it."""

    sequence: int
    state: Annotated[str, Meta(description="delayed, ready or leased.")]
    priority: int
    attempts: int
    redrives: int
    accepted_at: Time
    due_at: Time
    ready_at: Time
    message: Message


class PeekAnswer(Answer, frozen=True):
    """A mailbox: its counters, and its first entries."""

    mailbox: Address
    stats: MailboxStatsBody
    entries: list[EntryBody]
    more: Annotated[
        bool, Meta(description="Whether the answer was full before all that was asked for: ask with `after`.")
    ] = False


class CompleteRequest(Request, frozen=True):
    """The work of a lost lease was done all the same."""

    sequence: Annotated[int, Meta(description="The event that accepted the message.", ge=0, le=1 << 62)]


class CompleteAnswer(Answer, frozen=True):
    """Whether the message still waits; if so its next delivery is acked unseen."""

    waits: bool


class EndedRequest(Request, frozen=True):
    """Which attempt is asked about: after a settle whose answer was lost."""

    sequence: Annotated[int, Meta(description="The event that accepted the message.", ge=0, le=1 << 62)]
    attempt: Annotated[int, Meta(description="The delivery's attempt.", ge=1, le=1 << 31)]
    deadline_ms: Annotated[int, Meta(description="When its lease ended, mesh time.", ge=0, le=1 << 62)]


class EndedAnswer(Answer, frozen=True):
    """Whether that attempt acked or dropped the message."""

    ended: bool


class ExpectRequest(Request, frozen=True):
    """Keep answers with this correlation id apart for receives by it; or do so no longer."""

    correlation_id: CorrelationId


class ReprioritiseRequest(Request, frozen=True):
    """Give pending messages another priority: those with these ids, or all."""

    priority: Annotated[int | str, Meta(description="1 (first) to 5 (last), or a name.")]
    ids: Annotated[list[str], Meta(max_length=10_000)] | None = None


class BreakerRequest(Request, frozen=True):
    """Open the circuit breaker until it is closed by hand, or close it."""

    open: bool


class ForceDelayedRequest(Request, frozen=True):
    """Deliver delayed messages at once: of one mailbox, or of the whole namespace."""

    mailbox: str | None = None


class ChangedAnswer(Answer, frozen=True):
    """How many messages it concerned."""

    changed: int
