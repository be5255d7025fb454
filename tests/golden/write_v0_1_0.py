"""How `v0_1_0/` was written, by RelayMesh 0.1.0. Kept to be read: the directories are never written again.

Each directory has a ledger beside it, `<name>.expected.json`. It holds what this program did: what it sent,
settled and buried, and how many events of each operation that makes. Nothing in it was read back from the
journal. Before the program ends it counts the events of each segment with the reader that shares no code
with the product, and stops if the ledger disagrees.

    python -m tests.golden.write_v0_1_0 FOLDER    # a folder that does not exist yet
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from relaymesh import Drop, Reject, Retry
from relaymesh.errors import MeshError
from relaymesh.journal import JournalSettings
from relaymesh.kernel.commands import Complete, DrainAgent, Nack, OpenMailbox, RegisterAgent, Release
from relaymesh.kernel.contract import Rule
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.kernel.query import Peek
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.node.local import LocalSession
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings
from relaymesh.sdk.agent import Agent
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.mesh import Mesh
from relaymesh.testing.clock import ManualClock
from relaymesh.wire import frames
from tests.golden.reading import operations_of

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
HOLDER = "process-1"
SMALL = JournalSettings(segment_bytes_max=2_000, allocate_bytes=0, zero_ahead_bytes=0)
AHEAD = JournalSettings(segment_bytes_max=3_000, allocate_bytes=4_096, zero_ahead_bytes=1_024)
VOLATILE = ("lock", "mirror")
"""Files that name a process or a path of the machine; a directory is whole without them."""


class Embedded(Mesh):
    """A mesh without threads, whose time, ids and jitter are the same in each run."""

    def __init__(self, path: Path, settings: MeshSettings, clock: ManualClock, seed: int) -> None:
        node = Node(path, settings, clock=clock, rng=random.Random(seed), background=False)
        self.session = LocalSession(node)
        self.session.holder = HOLDER
        self._start(self.session, (1, 1), inline=True)


class Ledger:
    """One directory: what was done to it, booked by hand beside each call."""

    def __init__(self, folder: Path, name: str, journal: JournalSettings = SMALL, mirror: str = "") -> None:
        self.name = name
        self.folder = folder
        self.path = folder / name
        self.mirror = folder / mirror if mirror else None
        self.settings = MeshSettings(journal=journal, mirror=self.mirror)
        self.clock = ManualClock(BEGAN)
        self.events: Counter[str] = Counter()
        self.pending: dict[str, dict[str, int]] = {}
        self.letters: list[tuple[str, str, str]] = []
        self.checkpoints: list[int] = []
        self.epochs = 0

    @property
    def next_sequence(self) -> int:
        return 1 + self.events.total()

    # -- lives

    def open(self, *, voided: int = 0) -> None:
        """Start a node. `voided`: leases that a process which died held in this directory."""
        self.clock.advance(1)
        self.epochs += 1
        self.mesh = Embedded(self.path, self.settings, self.clock, seed=self.epochs)
        self.book("EpochStarted")
        self.book("Returned", voided)

    def close(self, *, released: int = 0) -> None:
        self.mesh.close()
        self.book("Returned", released)

    def die(self) -> None:
        """End as a killed process does: nothing is given back."""
        self.mesh.close(force=True)

    def checkpoint(self) -> None:
        assert self.mesh.checkpoint() == self.next_sequence
        self.checkpoints.append(self.next_sequence)

    def book(self, operation: str, count: int = 1) -> None:
        if count:
            self.events[operation] += count

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # -- calls

    def agent(self, name: str, **options: Any) -> Agent:
        agent = self.mesh.agent(name, **options)
        self.book("MailboxOpened")
        self.pending.setdefault(agent.address, {})
        return agent

    def send(self, sender: Agent, to: str, *ids: str, content: Any = None, **fields: Any) -> None:
        """One batch; each message says its own id unless `content` is given."""
        items = [
            {"to": to, "id": id, "content": {"i am": id} if content is None else content, "ttl": 0, **fields}
            for id in ids
        ]
        receipts = sender.send_many(items)
        for number, (id, receipt) in enumerate(zip(ids, receipts, strict=True)):
            assert receipt.sequence == self.next_sequence + number, (id, receipt)
            self.pending[f"default/{to}"][id] = receipt.sequence
        self.book("Accepted", len(ids))

    def publish(self, topic: str, *ids: str, to: Sequence[str]) -> None:
        receipts = self.mesh.publish_many(topic, [{"id": id, "content": [id], "ttl": 0} for id in ids])
        for number, (id, receipt) in enumerate(zip(ids, receipts, strict=True)):
            assert receipt.sequence == self.next_sequence + number
            for mailbox in to:
                self.pending[mailbox][id] = receipt.sequence
        self.book("Published", len(ids))

    def take(self, inbox: Any, *ids: str) -> list[Delivery]:
        found: list[Delivery] = inbox.receive_many(len(ids))
        assert [each.id for each in found] == list(ids), (found, ids)
        self.book("Granted", len(ids))
        return found

    def lend(self, mailbox: str, holder: str, *ids: str) -> list[DeliveryRow]:
        """Deliveries to a client of a server, which keeps its leases over a restart."""
        leases = self.mesh.session.receive(mailbox, len(ids), 0, holder=holder, remote=True).rows()
        assert [lease.envelope.id for lease in leases] == list(ids)
        self.book("Granted", len(ids))
        return leases

    def gone(self, operation: str, mailbox: str, *ids: str) -> None:
        """These are settled."""
        for id in ids:
            del self.pending[mailbox][id]
        self.book(operation, len(ids))

    def buried(self, mailbox: str, reason: str, *ids: str) -> None:
        self.letters += [(mailbox, id, reason) for id in ids]
        self.gone("DeadLettered", mailbox, *ids)

    def refuse(self, delivery: Delivery, *, state: str = "retrying", **nack: Any) -> None:
        assert self.mesh.session.execute(Nack(delivery._token, **nack)) == state

    # -- the end

    def write(self, today: str, about: str) -> None:
        for place in filter(None, (self.path, self.mirror)):
            for name in VOLATILE:
                (place / name).unlink(missing_ok=True)
        found = operations_of(self.path)
        assert found == self.events, f"{self.name}: the journal holds {found}, the ledger {self.events}"
        expected = {
            "about": about,
            "today": today,
            "clock": (
                BEGAN + timedelta(milliseconds=self.clock.wall_ms() - BEGAN.timestamp() * 1000)
            ).isoformat(),
            "mirror": self.mirror.name if self.mirror else None,
            "epochs": self.epochs,
            "next_sequence": self.next_sequence,
            "checkpoints": self.checkpoints[-2:],
            "operations": dict(sorted(self.events.items())),
            "pending": {name: list(map(list, box.items())) for name, box in self.pending.items()},
            "dead_letters": sorted(map(list, self.letters)),
        }
        text = json.dumps(expected, indent=1, ensure_ascii=True)
        (self.folder / f"{self.name}.expected.json").write_text(text + "\n", encoding="utf-8")


# -- everything


def everything(folder: Path) -> None:
    """Each operation, in five lives, with two checkpoints, an archive, and records behind them."""
    on = Ledger(folder, "everything")
    on.open()
    planner = _first_life(on)
    on.close()
    on.open()
    _failures(on, planner)
    on.checkpoint()
    _letters(on, planner)
    on.close()
    on.open()
    _topics(on)
    on.checkpoint()
    _late(on, planner)
    on.die()
    on.open(voided=1)
    _after_the_checkpoint(on, planner)
    on.die()
    on.write("opens", "each operation; two checkpoints, an archive, the store, records behind them")


def _first_life(on: Ledger) -> Agent:
    """Mailboxes of each kind, messages with each field, acks of a batch and of one."""
    planner = on.agent("planner")
    coder = on.agent("coder", contract={ValueError: Reject, KeyError: Drop, "busy": Rule(2, alert=True)})
    on.agent("slow", lease_ms=2_000, max_retries=1, backoff_jitter=0.0, breaker=False)
    on.agent("once", delivery_semantics="at_most_once")
    on.agent("lanes", ordered=True, halt_on_dead_letter=True, schedule="fifo")
    on.agent("strict", schedule="strict", capacity=50, rate_per_s=1_000_000.0, backoff_jitter=0.5)
    on.send(planner, "coder", *(f"plain-{n}" for n in range(5)))
    mesh = on.mesh
    mesh.ack_many(on.take(coder, "plain-0", "plain-1", "plain-2"))
    on.gone("Acked", coder.address, "plain-0", "plain-1", "plain-2")
    on.send(planner, "coder", "bytes", content=bytes(range(256)))
    on.send(planner, "coder", "text", content="gr\u00fc\u00dfe \U0001f600 \u0000 end")
    on.send(planner, "coder", "null-like", content=[None, True, 1.5, -(2**63), 2**53, {"": []}])
    on.send(
        planner,
        "strict",
        "all-fields",
        type="task_assign",
        priority="critical",
        task="task-1",
        key="key-1",
        correlation_id="correlation-1",
        reply_to="planner",
        requires_ack=True,
        tags=["red", "gr\u00fcn"],
        max_retries=7,
        trace="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        extra={"unknown": [1, {"deep": "value"}], "metadata": {"tenant": "seven"}},
    )
    on.send(planner, "strict", "delayed-1", "delayed-2", delay_ms=86_400_000)
    on.send(planner, "lanes", "lane-1", "lane-2", "lane-3", key="same")
    on.send(planner, "once", "once-1", "once-2")
    on.take(mesh.agent("once", delivery_semantics="at_most_once"), "once-1")
    on.gone("Acked", "default/once", "once-1")
    on.send(planner, "coder", "told", requires_ack=True)
    return planner


def _failures(on: Ledger, planner: Agent) -> None:
    """Each cause of a return, each exit, a completion, and the word to a sender that asked for one."""
    planner._mesh = on.mesh
    coder, slow = _inbox(on, "coder"), _inbox(on, "slow")
    session = on.mesh.session
    stack = 'Traceback (most recent call last):\n  File "agent.py", line 1, in work\nOSError: gone\n'
    [first] = on.take(coder, "plain-3")
    on.refuse(first, code="timeout", reason="OSError: gone", stack=stack, delay_ms=0)
    on.book("Returned")
    [second] = on.take(coder, "plain-4")
    on.refuse(second, code="busy", reason="later", state="deferred", until=session.now() + 5_000)
    on.book("Returned")
    [third] = on.take(coder, "bytes")
    session.execute(Release([third._token]))
    on.book("Returned")
    on.send(planner, "slow", "slow-1", "slow-2")
    [late] = on.take(slow, "slow-1")
    on.wait(3)
    on.mesh.deliver_due()
    on.book("Returned")
    assert session.execute(Complete(slow.address, late.sequence))
    on.book("Completed")
    [dropped] = on.take(slow, "slow-2")
    dropped.drop()
    on.gone("Dropped", slow.address, "slow-2")
    [bytes_] = on.take(coder, "bytes")
    on.refuse(bytes_, code="ValueError", reason="ValueError: no", stack=stack, state="dead_letter")
    on.buried(coder.address, "not_retryable", "bytes")
    [text] = on.take(coder, "text")
    on.refuse(text, code="KeyError", state="dropped")
    on.gone("Dropped", coder.address, "text")
    [null_like] = on.take(coder, "null-like")
    null_like.nack("never", retryable=False)
    on.buried(coder.address, "not_retryable", "null-like")
    [told] = on.take(coder, "told")
    told.ack(durable=True)
    on.gone("Acked", coder.address, "told")
    on.pending[planner.address][f"ack-0-{on.next_sequence}"] = on.next_sequence
    on.book("Accepted")
    [fourth] = on.take(coder, "plain-3")
    on.refuse(fourth, code="conflict", state="success")
    on.gone("Acked", coder.address, "plain-3")


def _letters(on: Ledger, planner: Agent) -> None:
    """Letters redriven as they were and edited, to where they died and elsewhere; one purged."""
    mesh, coder = on.mesh, "default/coder"
    [as_it_was] = mesh.redrive("bytes")
    assert as_it_was.sequence == on.next_sequence
    on.letters.remove((coder, "bytes", "not_retryable"))
    on.pending[coder]["bytes"] = on.next_sequence
    on.book("Redriven")
    [edited] = mesh.redrive("null-like", to="strict", edit={"edited": True})
    assert edited.sequence == on.next_sequence
    on.letters.remove((coder, "null-like", "not_retryable"))
    new = mesh.session.execute(Peek("default/strict", 100))[-1].envelope  # its id is made by the mesh
    assert new.origin == "null-like"
    on.pending["default/strict"][new.id] = on.next_sequence
    on.book("Redriven")
    on.send(planner, "coder", "short-1", "short-2", "short-3", ttl=10)
    on.wait(11)
    mesh.deliver_due()
    on.buried(coder, "ttl_expired", "short-1", "short-2", "short-3")
    assert mesh.purge_dead_letters("short-2") == 1
    on.letters.remove((coder, "short-2", "ttl_expired"))
    on.book("DeadLettersPurged")
    assert mesh.reprioritise("coder", "background", ["plain-4", "bytes"]) == 2
    on.book("Reprioritised", 2)
    assert mesh.force_deliver_delayed("strict") == 2
    on.book("DelayedForced", 2)


def _topics(on: Ledger) -> None:
    """Subscriptions, one that ends with messages in it, and one whose overflow is dead letters."""
    mesh = on.mesh
    orders = mesh.subscribe("order.*", "billing", ordered=True)
    full = mesh.subscribe("order.**", "tiny", capacity=1, overflow="dead_letter")
    gone = mesh.subscribe("order.created", "gone")
    on.book("Subscribed", 3)
    on.pending |= {orders.address: {}, full.address: {}, gone.address: {}}
    on.publish("order.created", "order-1", to=[orders.address, full.address, gone.address])
    on.publish("order.paid", "order-2", "order-3", to=[orders.address, full.address])
    on.buried(full.address, "mailbox_full", "order-2", "order-3")
    assert mesh.unsubscribe("order.created", "gone") == 1
    on.gone("Dropped", gone.address, "order-1")
    del on.pending[gone.address]
    on.book("Unsubscribed")
    [first] = on.take(orders, "order-1")
    first.ack()
    on.gone("Acked", orders.address, "order-1")
    execute = mesh.session.node.core.execute
    execute(RegisterAgent("default/robot", "builder", ("python", "git"), "1.0", b'{"team":"blue"}'))
    on.book("MailboxOpened")
    on.book("AgentRegistered")
    on.pending["default/robot"] = {}
    execute(DrainAgent("default/robot"))
    on.book("AgentRegistered")


def _late(on: Ledger, planner: Agent) -> None:
    """Behind the second checkpoint: leases of a client and of this process, which both end with it."""
    planner._mesh = on.mesh
    on.lend("default/lanes", "worker-7", "lane-1")
    on.send(planner, "coder", *(f"late-{n}" for n in range(10)))
    on.take(_inbox(on, "coder"), "late-0")


def _after_the_checkpoint(on: Ledger, planner: Agent) -> None:
    """The last life: it deals with what the one before left, and ends with leases out."""
    planner._mesh = on.mesh
    on.send(planner, "robot", *(f"last-{n}" for n in range(6)), tags=["last"])
    mesh = on.mesh
    mesh.ack_many(on.take(mesh.agent("robot"), "last-0", "last-1"))
    on.gone("Acked", "default/robot", "last-0", "last-1")
    on.take(mesh.agent("robot"), "last-2")
    on.lend("default/robot", "worker-8", "last-3")


def _inbox(on: Ledger, name: str) -> Agent:
    return Agent(on.mesh, f"default/{name}")


# -- a mirror


def mirrored(folder: Path) -> None:
    """A directory and its mirror, with files that grow ahead of their data."""
    on = Ledger(folder, "mirrored", AHEAD, mirror="mirrored.mirror")
    on.open()
    planner, coder = on.agent("planner"), on.agent("coder")
    for batch in range(6):
        on.send(planner, "coder", *(f"batch-{batch}-{n}" for n in range(10)), tags=["mirrored"])
        if batch == 2:
            on.checkpoint()
    ids = [f"batch-0-{n}" for n in range(10)]
    on.mesh.ack_many(on.take(coder, *ids))
    on.gone("Acked", coder.address, *ids)
    on.checkpoint()
    [bad] = on.take(coder, "batch-1-0")
    bad.nack("no", retryable=False)
    on.buried(coder.address, "not_retryable", "batch-1-0")
    on.close()
    on.open()
    planner._mesh = on.mesh
    on.send(planner, "coder", "after-1", "after-2")
    on.close()
    on.write("opens", "a directory with its mirror, mirrored.mirror, which holds the same journal")


# -- values that should have been refused

Misuse = Callable[[Ledger, Agent, Agent], None]
CHECKPOINTED = {
    "float_due": "JOURNAL_DAMAGED",
    "int_code": "JOURNAL_DAMAGED",
    "int_reason": "JOURNAL_DAMAGED",
    "buried_int_code": "JOURNAL_DAMAGED",
    "text_retries": "JOURNAL_DAMAGED",
    "unknown_exit": "JOURNAL_DAMAGED",
    "due_beyond_int64": "opens",
}
"""Values that are also written where a checkpoint holds them, and what a start made of that."""


def _one_value(folder: Path, name: str, today: str, about: str, misuse: Misuse, checkpoint: bool) -> None:
    """Two agents, one misuse between sends that got their receipts, and a clean end."""
    on = Ledger(folder, name)
    on.open()
    planner, coder = on.agent("planner"), on.agent("coder")
    on.send(planner, "coder", "before-1", "before-2")
    misuse(on, planner, coder)
    on.send(planner, "coder", "after-1", "after-2", "after-3")
    if checkpoint:
        on.checkpoint()
        on.send(planner, "coder", "behind-1")
    on.close()
    on.write(today, about)


def _nacked(error: Any = None, **words: Any) -> Misuse:
    def misuse(on: Ledger, _planner: Agent, coder: Agent) -> None:
        [delivery] = on.take(coder, "before-1")
        assert delivery.nack(error, **words) == "retrying"
        on.book("Returned")

    return misuse


def _buried(error: Any = None, **words: Any) -> Misuse:
    def misuse(on: Ledger, _planner: Agent, coder: Agent) -> None:
        [delivery] = on.take(coder, "before-1")
        assert delivery.nack(error, retryable=False, **words) == "dead_letter"
        on.buried(coder.address, "not_retryable", "before-1")

    return misuse


def _subscribed(rule: Any) -> Misuse:
    def misuse(on: Ledger, _planner: Agent, _coder: Agent) -> None:
        subscription = on.mesh.subscribe("order.*", "ruled", contract={ValueError: rule})
        on.book("Subscribed")
        on.pending[subscription.address] = {}
        on.publish("order.paid", "order-1", to=[subscription.address])

    return misuse


def _contract(rule: Any) -> Misuse:
    def misuse(on: Ledger, _planner: Agent, _coder: Agent) -> None:
        on.agent("ruled", contract={ValueError: rule})

    return misuse


def _endless_lease(on: Ledger, planner: Agent, _coder: Agent) -> None:
    """As a frame of the binary WebSocket asks for it: packed, unpacked, and handed to the session."""
    asked = frames.OpenMailbox("default/endless", MailboxSettings(lease_ms=2**64 - 1))
    given = msgspec.msgpack.decode(msgspec.msgpack.encode(asked), type=frames.OpenMailbox)
    on.mesh.session.execute(OpenMailbox(given.mailbox, given.settings))
    on.book("MailboxOpened")
    on.pending["default/endless"] = {}
    on.send(planner, "endless", "endless-1")


def _endless_lease_granted(on: Ledger, planner: Agent, coder: Agent) -> None:
    _endless_lease(on, planner, coder)
    on.lend("default/endless", "worker-7", "endless-1")


def _reserved_names(on: Ledger, planner: Agent, _coder: Agent) -> None:
    extra = {
        "leaseToken": "0-1-1",
        "metadata": {"replyTo": "default/thief", "originId": "forged", "contentEncoding": "base64"},
        "originId": "forged",
        "contentEncoding": "base64",
        "retryCount": 9,
    }
    on.send(planner, "coder", "forged", extra=extra)


def values(folder: Path) -> None:
    unreadable = "FORMAT_TOO_NEW"
    retries: Any = "3"
    unknown: Any = "dlq"
    half: Any = 2.5
    for name, today, about, misuse in (
        ("float_due", unreadable, "nack(delay_ms=1000 * 0.5)", _nacked("busy", delay_ms=1000 * 0.5)),
        ("infinite_due", unreadable, "nack(delay_ms=inf)", _nacked("busy", delay_ms=float("inf"))),
        ("int_code", unreadable, "nack(code=503)", _nacked(code=503)),
        ("int_reason", unreadable, "nack(404)", _nacked(404)),
        ("bytes_reason", unreadable, "nack(b'no')", _nacked(b"no")),
        ("dict_reason", unreadable, "nack({'status': 404})", _nacked({"status": 404})),
        ("buried_int_code", unreadable, "nack(code=503, retryable=False)", _buried(code=503)),
        ("buried_int_reason", unreadable, "nack(404, retryable=False)", _buried(404)),
        ("text_retries", unreadable, 'contract={E: Retry(times="3")}', _contract(Retry(times=retries))),
        ("float_retries", unreadable, "contract={E: Retry(times=2.5)}", _contract(Retry(times=half))),
        ("unknown_exit", unreadable, 'contract={E: Rule(3, exit="dlq")}', _contract(Rule(3, exit=unknown))),
        (
            "subscribed_text_retries",
            unreadable,
            "the same of a subscription",
            _subscribed(Retry(times=retries)),
        ),
        ("endless_lease", "opens", "open_mailbox with lease_ms 2**64-1", _endless_lease),
        ("endless_lease_granted", "opens", "the same, and a lease of that length", _endless_lease_granted),
        ("due_beyond_int64", "opens", "nack(delay_ms=2**63)", _nacked("later", delay_ms=2**63)),
        ("reserved_names", "opens", "extra with the names of the envelope's own fields", _reserved_names),
    ):
        _one_value(folder, name, today, about, misuse, checkpoint=False)
        if name in CHECKPOINTED:
            kept = f"{about}, kept in a checkpoint"
            _one_value(folder, f"{name}_checkpointed", CHECKPOINTED[name], kept, misuse, checkpoint=True)


def poisoned(folder: Path) -> None:
    """Values that end the mesh before a record is written: each ends one life of this directory."""
    on = Ledger(folder, "poisoned")
    on.open()
    planner = on.agent("planner")
    ends: tuple[tuple[str, Callable[[Delivery], object]], ...] = (
        ("surrogate", lambda delivery: _raise_in(delivery, ValueError("half an emoji: \ud83d"))),
        ("until-ns", lambda delivery: _raise_in(delivery, Retry(until=time.time_ns()))),
        ("text-after", lambda delivery: _raise_in(delivery, Retry(after="5"))),  # type: ignore[arg-type]
        ("text-extend", lambda delivery: delivery.extend("5")),  # type: ignore[arg-type]
        ("huge-delay", lambda delivery: delivery.nack(delay_ms=10**20)),
        ("longest-delay", lambda delivery: delivery.nack(delay_ms=2**64 - 1)),
    )
    for name, end in ends:
        agent = on.agent(name)
        on.send(planner, name, f"{name}-1", f"{name}-2")
        [delivery] = on.take(agent, f"{name}-1")
        _must_fail(on, lambda end=end, delivery=delivery: end(delivery))  # type: ignore[misc]
        on.open(voided=1)
        planner._mesh = on.mesh
        on.send(planner, name, f"{name}-3")
    for last in (
        lambda: on.mesh.agent("too-long", lease_ms=2**64),
        lambda: on.mesh.agent("surrogate").receive_many("5"),  # type: ignore[arg-type]
    ):
        _must_fail(on, last)
        on.open()
    planner._mesh = on.mesh
    on.send(planner, "surrogate", "the-end")
    on.close()
    on.write(
        "opens",
        "what is left when a value ended the mesh: lone surrogate, until=time.time_ns(), 10**20, 2**64",
    )


def _raise_in(delivery: Delivery, error: Exception) -> None:
    with delivery:
        raise error


def _must_fail(on: Ledger, call: Callable[[], object]) -> None:
    try:
        call()
    except (MeshError, TypeError, ValueError) as error:
        print(f"  {error!r:.150}")
    try:
        on.mesh.deliver_due()
    except MeshError as error:
        print(f"    then {error!r:.150}")
    else:
        raise AssertionError("the mesh goes on")
    on.mesh.close(force=True)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)  # fails when it is there: what lies in it was written once, for good
    for write in (everything, mirrored, values, poisoned):
        write(folder)
    for path in folder.rglob("*.new"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    main()
