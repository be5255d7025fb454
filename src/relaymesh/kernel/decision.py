"""A decision in progress: the state to read, and the step that collects the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from relaymesh.errors import UnknownRecipient
from relaymesh.kernel.address import name_of
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Ended, Repeated, Scheduled, Step

Encoders = Mapping[type, Callable[[AnyRecord], bytes]]
"""Encoders of records, by type."""


class Unwritable(Exception):
    """A decision made a record that cannot be written: a defect, because commands are checked."""

    def __init__(self, record: AnyRecord, error: Exception) -> None:
        of = getattr(record, "mailbox", "the mesh")
        super().__init__(f"the record {type(record).__name__} of {of} cannot be written ({error!r})")


class Decision(msgspec.Struct, eq=False):  # known to the collector: an error of its step leads back to it
    """Passed to every function that decides. `emit` is the only way to change durable state."""

    state: State
    step: Step
    now: int
    chance: Callable[[], float]
    encoders: Encoders

    def emit(self, record: AnyRecord) -> Any:
        """Encode the record, apply it and keep it for the journal. Returns `apply`'s detail.

        Encoded first: a record that cannot be written must not change the state.
        """
        try:
            encoded = self.encoders[record.__class__](record)
        except Exception as error:
            raise Unwritable(record, error) from error
        detail = self.state.apply(record)
        step = self.step
        step.encoded.append(encoded)
        step.records.append(record)
        step.details.append(detail)
        return detail

    def after_write(self) -> None:
        """The result may leave once everything so far is written."""
        self.step.written = self.state.sequence

    def after_sync(self) -> None:
        """The result may leave once everything so far is synced."""
        self.step.written = self.step.synced = self.state.sequence

    def ended(self, ended: Ended) -> None:
        if self.step.ended is None:
            self.step.ended = []
        self.step.ended.append(ended)

    def sent(self, sent: Repeated | Scheduled) -> None:
        if self.step.sent is None:
            self.step.sent = []
        self.step.sent.append(sent)

    def mailbox(self, address: str) -> Mailbox:
        mailbox = self.state.mailboxes.get(address)
        if mailbox is None:
            raise UnknownRecipient(f"there is no mailbox {name_of(address)!r} in this mesh ({address})")
        return mailbox
