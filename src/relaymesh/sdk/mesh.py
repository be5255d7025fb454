"""`Mesh`: the mesh for ordinary, threaded programs."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from relaymesh.client.settings import Transport
from relaymesh.errors import Closed
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
from relaymesh.node.clock import Clock
from relaymesh.node.settings import Durability
from relaymesh.sdk.agent import Agent, Handler, Subscription, checked_topic, handler_name
from relaymesh.sdk.compose import chosen_ids, compose_all
from relaymesh.sdk.delivery import Delivery, checked_deliveries, mark_settled
from relaymesh.sdk.letters import DeadLetter, Redriven, Which, choose, edited_messages, redriven, select
from relaymesh.sdk.names import Names
from relaymesh.sdk.opening import checked_clock, open_session
from relaymesh.sdk.options import MailboxOptions, mailbox_settings
from relaymesh.sdk.outcome import FailureTable
from relaymesh.sdk.place import Settings, place_of
from relaymesh.sdk.pool import CORE_DEFAULT, MAX_DEFAULT, WorkerPool, worker_counts
from relaymesh.sdk.receipt import Receipt, receipts_of
from relaymesh.sdk.renewal import Renewer
from relaymesh.sdk.session import Described, Session
from relaymesh.sdk.stop_signals import exit_of, told_to_stop
from relaymesh.wire.envelope import parse_priority
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.stats import MeshStats

MESH_SENDER = "default/mesh"
"""The sender of what is published in nobody's name."""
HANDLERS_STOP_S = 15.0
"""How long handlers that run may take to finish when the mesh closes."""
WATCH_S = 0.25
"""How often `run` looks whether a signal came, or the mesh has failed."""

log = logging.getLogger("relaymesh.sdk")


class Mesh:
    """A mesh: a directory with a journal, memory alone, or a node elsewhere. Thread-safe.

        with Mesh("data") as mesh:
            planner, coder = mesh.agent("planner"), mesh.agent("coder")
            planner.send("coder", {"do": "bump version"})
            with coder.receive(timeout=5) as delivery:
                print(delivery.content)

    A path is a directory, or the URL of a node (`http://host:port`). Without one: `RELAYMESH_URL`, else
    `RELAYMESH_HOME`, else `~/.relaymesh`. One process at a time may open a directory; if that one is
    `relaymesh serve`, others with the same path use its node.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        durability: Durability | None = None,
        settings: Settings | None = None,
        workers: tuple[int, int] = (CORE_DEFAULT, MAX_DEFAULT),
        clock: Clock | None = None,
        token: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Opens the directory and recovers what is in it, or connects to the node.

        path: a directory, or the URL of a node. None: `RELAYMESH_URL`, else `RELAYMESH_HOME`, else
            `~/.relaymesh`.
        durability: when a receipt leaves: `synced` (it is on the disk), `batched` (it is written, and synced
            within 100 ms), `memory` (nothing is kept, and there is no directory). Short for the setting of
            that name.
        settings: `MeshSettings` for a directory, `RemoteSettings` for a URL.
        workers: threads that run handlers, at first and at most; for `AsyncMesh` the second is how many
            handlers run at once.
        clock: another clock than the machine's, for tests: see `relaymesh.testing`.
        token: the access token, for a URL. None: `RELAYMESH_TOKEN`.
        transport: how to speak to the node of a URL: `websocket`, the default, or `http`.
        """
        place = place_of(path, durability=durability, settings=settings, token=token, transport=transport)
        counts = worker_counts(workers)
        self._start(open_session(place, checked_clock(clock)), counts)

    def _start(self, session: Session, workers: tuple[int, int], *, inline: bool = False) -> None:
        self._session = session
        self._limit = session.payload_bytes_max
        self._names = Names(session.namespace)
        self._tables: dict[str, FailureTable] = {}
        self._renewer = Renewer(session)
        self._pool = WorkerPool(self, *workers, inline=inline)
        self._closed = threading.Event()

    @property
    def path(self) -> os.PathLike[str] | None:
        """The data directory; None for a mesh in memory, or elsewhere."""
        return self._session.path

    # -- mailboxes

    def agent(self, name: str, **options: Unpack[MailboxOptions]) -> Agent:
        """The agent of this name; its mailbox is opened if need be. Options change its settings."""
        address = self._names.agent(name)
        settings = None
        if options:
            settings, self._tables[address] = mailbox_settings(options)
        self._session.execute(OpenMailbox(address, settings))
        return Agent(self, address)

    def subscribe(self, topic: str, name: str, **options: Unpack[MailboxOptions]) -> Subscription:
        """A durable subscription to a topic (`order.created`) or a pattern (`order.*`, `order.**`).

        It gets what is published from now on, in order, whether or not anybody receives; several
        receivers share it. `ordered=True` hands out one message at a time.
        """
        address = self._names.subscription(topic, name)
        settings, self._tables[address] = mailbox_settings(options, schedule="fifo")
        self._session.execute(Subscribe(self._names.pattern(topic), address, settings))
        return Subscription(self, address)

    def unsubscribe(self, topic: str, name: str) -> int:
        """End a subscription; what it still held is dropped. Answers how many messages that were."""
        return self._session.execute(Unsubscribe(self._names.subscription(topic, name)))

    def on(
        self, topic: str, name: str | None = None, **options: Unpack[MailboxOptions]
    ) -> Callable[[Handler], Handler]:
        """Decorator: subscribe, and run the function for every message. The subscription has its name."""
        checked_topic(topic)

        def register(handler: Handler) -> Handler:
            subscription = self.subscribe(topic, handler_name(handler) if name is None else name, **options)
            return subscription.handle(handler)

        return register

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
        """Send to everybody who subscribes to the topic; `receipt.targets` says how many that are."""
        item = {"content": content, "id": id, "key": key, **fields}
        return self.publish_many(topic, [item], sender=sender, timeout=timeout)[0]

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
        """Ack a batch in one step. Raises `LeaseLost`, naming them, if some were lost; the rest are acked."""
        flag(durable, "durable")
        deliveries = checked_deliveries(deliveries, Delivery)
        tokens = [each._token for each in deliveries if not each._settled]
        mark_settled(deliveries, self._session.execute(Ack(tokens), durable=durable))

    # -- looking after it

    def dead_letters(self, **filters: Any) -> list[DeadLetter]:
        """Dead letters that fit: `receiver, sender, reason, code, ids, since, until, status, limit`."""
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
        """Send dead letters back to where they died, or to agent `to`. Doing it twice is doing it once.

        `which`: an id, a `DeadLetter`, or several; else a filter as for `dead_letters`. `edit`: a function
        from content to content, or the new content; an edited message gets a new id, which the answer names
        in `redriven_as`, and names its origin. The function runs in the calling thread before anything is
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
        """Remove dead letters for good. Answers how many."""
        letters = choose(self._session.execute(DeadLetters()), which, filters)
        return self._session.execute(PurgeDeadLetters([letter.key for letter in letters])) if letters else 0

    def reprioritise(self, name: str, priority: int | str, ids: Sequence[str] | None = None) -> int:
        """Give pending messages of an agent another priority; all of them, or those with these ids."""
        chosen = None if ids is None else chosen_ids(ids)
        return self._session.execute(Reprioritise(self._names.agent(name), chosen, parse_priority(priority)))

    def deliver_due(self) -> int:
        """Let delayed messages that are due arrive now. It happens by itself; this answers how many did."""
        return self._session.execute(Tick())

    def force_deliver_delayed(self, name: str | None = None) -> int:
        """Deliver delayed messages at once: of one agent, or all. Answers how many."""
        return self._session.execute(ForceDelayed(None if name is None else self._names.agent(name)))

    def delayed_count(self, name: str | None = None) -> int:
        """How many messages wait for their time: of one agent, or all."""
        return self.stats().delayed(None if name is None else self._names.agent(name))

    def stats(self) -> MeshStats:
        """Counts of every mailbox and of the whole. Answers also when the disk does not."""
        return self._session.execute(Stats())

    def checkpoint(self) -> int | None:
        """Write the whole state now, so that the next start need not replay. Happens by itself."""
        return self._session.execute(Checkpoint())

    # -- the end

    def run(self, seconds: float | None = None, *, timeout: float | None = HANDLERS_STOP_S) -> None:
        """Keep handlers running until the mesh is closed, the time is over, or a signal asks to stop.

        At SIGINT (Ctrl-C), SIGTERM or SIGHUP no more messages are taken, handlers that run may finish within
        `timeout` seconds, and `run` returns; the mesh is still open. A second signal ends the wait: what was
        not finished goes back unburned, and `run` raises `KeyboardInterrupt`, or `SystemExit` for the other
        signals. A signal that is ignored, or that the program handles itself, is left alone; so are all
        outside the main thread. Raises the failure of a mesh that has failed, such as `JournalPoisoned`.
        """
        deadline = deadline_of(seconds, time.monotonic())
        most = patience(timeout)
        told: list[signal.Signals] = []
        with told_to_stop(told.append):
            while not told and not self._closed.wait(min(WATCH_S, max(0.0, deadline - time.monotonic()))):
                raise_failure(self._session)
                if time.monotonic() >= deadline:
                    return
            if told:
                log_stop(told[0], most)
                self._pool.close(most, lambda: len(told) > 1)
        if len(told) > 1:
            raise exit_of(told[1])

    def close(self, *, force: bool = False, timeout: float | None = HANDLERS_STOP_S) -> None:
        """Let handlers finish, give back what was not settled, and free the directory. Twice is once.

        Handlers that run have `timeout` seconds (None: for ever). What they have not finished by then, or
        when Ctrl-C interrupts the wait, goes back unburned. `force` waits for no handler, and leaves
        deliveries that `receive` handed out to the next start, as a crash does: their attempts count.
        """
        flag(force, "force")
        most = patience(timeout)
        if self._closed.is_set():
            return
        self._closed.set()
        if self._session.forked:
            return  # everything here is the parent's
        try:
            self._pool.close(0.0 if force else most)
        finally:
            self._renewer.close()
            self._session.close(force=force)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


NO_TABLE = FailureTable()


def deadline_of(seconds: float | None, now: float) -> float:
    """When a `run` of so many seconds ends; infinity for one without a limit."""
    length = patience(seconds)
    return math.inf if length is None else now + length


def raise_failure(session: Described) -> None:
    """Raise why the mesh has failed, if it has; that it was closed is no failure."""
    failure = session.failure
    if failure is not None and not isinstance(failure, Closed):
        raise type(failure)(failure.message, hint=failure.hint)


def log_stop(number: signal.Signals, timeout: float | None) -> None:
    within = "when handlers have finished" if timeout is None else f"within {timeout:g} s"
    log.info("%s: stopping %s; once more stops at once", number.name, within)
