"""Requests as calls of the WebSocket protocol: the name, the arguments and the type of the answer.

One row for each operation that is a single question and its answer. Operations with frames of their own
(send, settle), in pages, or in batches are written out in `relaymesh.client.websocket`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from relaymesh.kernel.address import name_of
from relaymesh.kernel.commands import (
    Complete,
    DrainAgent,
    ForceDelayed,
    OpenMailbox,
    Reprioritise,
    Request,
    SetBreaker,
    Subscribe,
    Tick,
    Unsubscribe,
)
from relaymesh.wire import frames
from relaymesh.wire.frames import Arguments, Nothing
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.stats import MeshStats

__all__ = ["FORMS", "Form"]


class Form(msgspec.Struct, frozen=True):
    """How one request travels. `answer`: the type of its result; None: it has none."""

    name: str
    arguments: Callable[[Any], Arguments]
    answer: Any = None


def _nothing(request: Request[Any]) -> Nothing:  # noqa: ARG001 - the request has no fields
    return Nothing()


def _subscribe(command: Subscribe) -> frames.Subscribe:
    name = name_of(command.mailbox).partition(":")[2]
    return frames.Subscribe(command.pattern, name, command.settings)


def _reprioritise(command: Reprioritise) -> frames.Reprioritise:
    ids = None if command.ids is None else sorted(command.ids)
    return frames.Reprioritise(command.mailbox, command.priority, ids)


FORMS: dict[type[Request[Any]], Form] = {
    OpenMailbox: Form("open_mailbox", lambda it: frames.OpenMailbox(it.mailbox, it.settings)),
    DrainAgent: Form("drain", lambda it: frames.OfAgent(it.agent)),
    Subscribe: Form("subscribe", _subscribe),
    Unsubscribe: Form("unsubscribe", lambda it: frames.OfMailbox(it.mailbox), int),
    Complete: Form("complete", lambda it: frames.Complete(it.mailbox, it.sequence), bool),
    Reprioritise: Form("reprioritise", _reprioritise, int),
    SetBreaker: Form("set_breaker", lambda it: frames.SetBreaker(it.mailbox, it.open)),
    ForceDelayed: Form("force_delayed", lambda it: frames.ForceDelayed(it.mailbox), int),
    Tick: Form("deliver_due", _nothing, int),
    Stats: Form("stats", _nothing, MeshStats),
    Checkpoint: Form("checkpoint", _nothing, int | None),
}
