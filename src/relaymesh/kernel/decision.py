"""A decision in the making: the state to look at, and the step that collects what follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaymesh.errors import UnknownRecipient
from relaymesh.kernel.address import name_of
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Ended, Step

Encode = Callable[[AnyRecord], bytes]


class Unwritable(Exception):
    """A decision made a record that cannot be written: a defect, because commands are checked."""

    def __init__(self, record: AnyRecord, error: Exception) -> None:
        of = getattr(record, "mailbox", "the mesh")
        super().__init__(f"the record {type(record).__name__} of {of} cannot be written ({error!r})")


class Decision:
    """Passed to every function that decides. `emit` is the only way to change durable state."""

    __slots__ = ("chance", "encode", "now", "state", "step")

    def __init__(
        self, state: State, step: Step, now: int, chance: Callable[[], float], encode: Encode
    ) -> None:
        self.state = state
        self.step = step
        self.now = now
        self.chance = chance
        self.encode = encode

    def emit(self, record: AnyRecord) -> Any:
        """Encode the record, apply it and keep it for the journal. Returns `apply`'s detail.

        Encoded first: a record that cannot be written must not change the state.
        """
        try:
            encoded = self.encode(record)
        except Exception as error:
            raise Unwritable(record, error) from error
        detail = self.state.apply(record)
        self.step.encoded.append(encoded)
        self.step.records.append(record)
        self.step.details.append(detail)
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

    def mailbox(self, address: str) -> Mailbox:
        mailbox = self.state.mailboxes.get(address)
        if mailbox is None:
            raise UnknownRecipient(f"there is no mailbox {name_of(address)!r} in this mesh ({address})")
        return mailbox
