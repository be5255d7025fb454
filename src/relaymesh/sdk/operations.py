"""The operations of a mesh, besides opening and closing: see `Mesh`."""

# Written by `make twins` from async_operations.py: change that file.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from relaymesh.kernel.bounds import flag, patience
from relaymesh.kernel.commands import (
    Ack,
    ForceDelayed,
    OpenMailbox,
    Publish,
    PurgeDeadLetters,
    Redrive,
    Reprioritise,
    Subscribe,
    Tick,
    Unsubscribe,
)
from relaymesh.kernel.query import DeadLetters
from relaymesh.sdk.agent import Agent, Subscription
from relaymesh.sdk.compose import chosen_ids, compose_all
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.endings import FailureTable
from relaymesh.sdk.handed import checked_deliveries, mark_settled
from relaymesh.sdk.letters import DeadLetter, Redriven, Which, choose, edited_messages, redriven, select
from relaymesh.sdk.names import Names
from relaymesh.sdk.options import MailboxOptions, mailbox_settings
from relaymesh.sdk.receipt import Receipt, receipts_of
from relaymesh.wire.envelope import parse_priority
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.stats import MeshStats

if TYPE_CHECKING:
    from relaymesh.sdk.mesh import Mesh
    from relaymesh.sdk.session import Session

__all__ = ["Operations"]

MESH_SENDER = "default/mesh"
"""The sender of messages that are published without one."""
NO_TABLE = FailureTable()


class Operations:
    """The operations of a mesh. `Mesh` opens it, runs its handlers and closes it."""

    _names: Names
    _limit: int
    _tables: dict[str, FailureTable]
    if TYPE_CHECKING:

        @property
        def _session(self) -> Session: ...

    def agent(self, name: str, **options: Unpack[MailboxOptions]) -> Agent:
        """Return the agent of this name; opens its mailbox if it has none. Options change its settings."""
        address = self._names.agent(name)
        settings = None
        if options:
            settings, self._tables[address] = mailbox_settings(options)
        self._session.execute(OpenMailbox(address, settings))
        return Agent(cast("Mesh", self), address)

    def subscribe(self, topic: str, name: str, **options: Unpack[MailboxOptions]) -> Subscription:
        """Return a durable subscription to a topic (`order.created`) or a pattern (`order.*`, `order.**`).

        It gets what is published from now on, in order, even while it has no receiver; several receivers
        share it. `ordered=True` delivers one message at a time.
        """
        address = self._names.subscription(topic, name)
        settings, self._tables[address] = mailbox_settings(options, schedule="fifo")
        self._session.execute(Subscribe(self._names.pattern(topic), address, settings))
        return Subscription(cast("Mesh", self), address)

    def unsubscribe(self, topic: str, name: str) -> int:
        """End a subscription and drop what it still holds. Returns how many messages were dropped."""
        return self._session.execute(Unsubscribe(self._names.subscription(topic, name)))

    def _table_of(self, address: str) -> FailureTable:
        return self._tables.get(address, NO_TABLE)

    # -- publishing and settling

    def publish(
        self,
        topic: str,
        content: Any,
        *,
        id: str | None = None,
        key: str | None = None,
        sender: str | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> Receipt:
        """Send to every subscription of the topic; `receipt.targets` is their number."""
        item = {"content": content, "id": id, "key": key, **fields}
        return (self.publish_many(topic, [item], sender=sender, timeout=timeout))[0]

    def publish_many(
        self,
        topic: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        sender: str | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Publish a batch on one topic, all or none: each a dict of `content` and any field of `send`."""
        address = self._names.topic(topic)
        origin = MESH_SENDER if sender is None else self._names.agent(sender, "sender")
        envelopes, notes, minted = compose_all(
            origin, messages, self._session.new_ids, self._limit, self._names
        )
        command = Publish(address, envelopes, minted)
        return receipts_of(self._session.execute(command, timeout=patience(timeout)), notes)

    def ack_many(self, deliveries: Sequence[Delivery], *, durable: bool = False) -> None:
        """Ack a batch in one step. If some leases were lost, acks the rest and raises `LeaseLost` with their
        names.
        """
        flag(durable, "durable")
        deliveries = checked_deliveries(deliveries, Delivery)
        tokens = [each._token for each in deliveries if not each._settled]
        mark_settled(deliveries, self._session.execute(Ack(tokens), durable=durable))

    # -- looking after it

    def dead_letters(self, **filters: Any) -> list[DeadLetter]:
        """Return the dead letters that match: `receiver, sender, reason, code, ids, since, until, status,
        limit`.
        """
        return select(self._session.execute(DeadLetters()), **filters)

    def redrive(
        self,
        which: Which = None,
        *,
        to: str | None = None,
        edit: Any = None,
        dry_run: bool = False,
        **filters: Any,
    ) -> list[Redriven]:
        """Send dead letters back to their mailbox, or to agent `to`. Repeating the call changes nothing.

        `which`: an id, a `DeadLetter`, or several; else a filter as for `dead_letters`. `edit`: a function
        from content to content, or the new content. An edited message gets a new id and names its origin; the
        result holds the new id in `redriven_as`. The function runs in the calling thread before anything is
        redriven, and may use the mesh; if it fails or returns None, nothing is redriven.
        """
        flag(dry_run, "dry_run")
        letters = choose(self._session.execute(DeadLetters()), which, filters)
        target = None if to is None else self._names.agent(to, "recipient")
        sequences: list[int | None] = [None] * len(letters)
        edited = None
        if not dry_run and letters:
            edited = edited_messages(letters, edit, self._session.new_ids, self._limit)
            sequences = self._session.execute(Redrive([letter.key for letter in letters], target, edited))
        return redriven(letters, target, sequences, edited)

    def purge_dead_letters(self, which: Which = None, **filters: Any) -> int:
        """Remove dead letters for good. Returns how many."""
        letters = choose(self._session.execute(DeadLetters()), which, filters)
        return self._session.execute(PurgeDeadLetters([letter.key for letter in letters])) if letters else 0

    def reprioritise(self, name: str, priority: int | str, ids: Sequence[str] | None = None) -> int:
        """Change the priority of an agent's pending messages: all of them, or those with these ids."""
        chosen = None if ids is None else chosen_ids(ids)
        return self._session.execute(Reprioritise(self._names.agent(name), chosen, parse_priority(priority)))

    def deliver_due(self) -> int:
        """Deliver delayed messages that are due. The mesh also does this by itself. Returns how many."""
        return self._session.execute(Tick())

    def force_deliver_delayed(self, name: str | None = None) -> int:
        """Deliver delayed messages at once: of one agent, or all. Returns how many."""
        return self._session.execute(ForceDelayed(None if name is None else self._names.agent(name)))

    def delayed_count(self, name: str | None = None) -> int:
        """How many messages wait for their time: of one agent, or all."""
        return (self.stats()).delayed(None if name is None else self._names.agent(name))

    def stats(self) -> MeshStats:
        """Counters of every mailbox and of the whole mesh. Works even while the disk fails."""
        return self._session.execute(Stats())

    def checkpoint(self) -> int | None:
        """Write the whole state now: the next start replays less. The mesh also does this by itself."""
        return self._session.execute(Checkpoint())
