"""What is let in, or recognised, wrongly."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.kernel.commands import Send
from relaymesh.kernel.dead_letters import Shelf
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.dedup import Admitted
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.kernel import DECISIONS
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.parcel import Parcel
from relaymesh.kernel.recognition import Recognition
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.suspension import Look
from relaymesh.kernel.topics import Subscriptions
from relaymesh.node.intake import Intake
from relaymesh.testing.planted.bug import Original, at, plant


@plant(at(Admitted, "settle"), broken="an id is forgotten when its message is settled")
def dedup_ends_with_the_message(
    original: Original, admitted: Admitted, target: str, entries: list[Entry]
) -> None:
    known = admitted.of(target)
    for entry in entries:
        del known[entry.envelope.id]


@plant(at(Admitted, "settle_parcel"), broken="ids are forgotten when their messages are settled together")
def dedup_ends_with_the_parcel(original: Original, admitted: Admitted, target: str, parcel: Parcel) -> bool:
    known = admitted.of(target)
    for id in parcel.ids:
        del known[id]
    return True


@plant(at(Intake, "_look_up"), broken="ids that memory has given up are not looked up in the store")
def dedup_without_the_store(original: Original, intake: Intake, targets: Any) -> None:
    pass


@plant(at(Recognition, "require_same"), broken="the same id with other content is taken for a duplicate")
def conflict_taken_for_duplicate(original: Original, recognition: Recognition) -> None:
    pass


@plant(at(Mailbox, "room_for"), broken="a full mailbox takes more")
def capacity_not_asked(original: Original, mailbox: Mailbox, messages: int, size: int) -> bool:
    return True


@plant(at(DECISIONS, Send), broken="a batch that is refused is accepted up to where it was refused")
def batch_accepted_in_part(original: Original, decision: Decision, command: Send) -> list[Receipt]:
    parts = [msgspec.structs.replace(command, groups=[group]) for group in command.groups]
    return [receipt for part in parts for receipt in original(decision, part)]


@plant(at(Shelf, "full"), broken="a mailbox takes more though its dead letters are full")
def dead_letters_not_asked(original: Original, shelf: Shelf, settings: MailboxSettings) -> bool:
    return False


@plant(
    at(Subscriptions, "suspend"),
    broken="a subscription that was suspended gets publishes all the same",
    first_seed=111,
)
def suspended_not_skipped(
    original: Original, subscriptions: Subscriptions, mailbox: str, reason: str
) -> None:
    pass


@plant(
    at(Look, "relieved"),
    broken="a suspended subscription is resumed with its dead letters still there",
    first_seed=840,
)
def resumed_at_once(original: Original, look: Look, mailbox: Mailbox) -> bool:
    return True


@plant(at(Subscriptions, "route"), broken="the last of several subscribers does not get a publish")
def subscriber_missed(original: Original, subscriptions: Subscriptions, topic: str) -> tuple[str, ...]:
    route: tuple[str, ...] = original(subscriptions, topic)
    return route[:-1] if len(route) > 1 else route
