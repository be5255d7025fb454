"""The whole kernel against a dumb model, with crashes, restarts, snapshots and time.

After every step: the model and the kernel agree on every mailbox, message, dead letter and counter; a
replay of the encoded records is the live state; every structure counts right; every change of an
entry's state is in `TRANSITIONS`.

    RELAYMESH_MODEL=soak pytest tests/kernel/test_model.py     many more and longer runs
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from relaymesh.kernel.commands import (
    Ack,
    Complete,
    Expect,
    Extend,
    ForceDelayed,
    Forgo,
    Nack,
    OpenMailbox,
    Publish,
    PurgeDeadLetters,
    Receive,
    Redrive,
    RegisterAgent,
    Release,
    Reprioritise,
    Send,
    Settle,
    Start,
    Stop,
    Subscribe,
    Tick,
    Unexpect,
    Unsubscribe,
)
from relaymesh.kernel.contract import Rule
from relaymesh.kernel.dedup import WINDOW_MS, Seen, digest_of
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.records import Accepted, AnyRecord, DeadLettered, Granted
from relaymesh.kernel.request import Command
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.snapshot import AnyPiece, Snapshot, restore
from relaymesh.kernel.state import State
from relaymesh.kernel.step import Step
from relaymesh.kernel.waiter import Waiter
from tests.kernel.checker import check
from tests.kernel.driver import NOON, replay, through_a_checkpoint, through_the_journal
from tests.kernel.durable import admitted, durable
from tests.kernel.model import Facts, Message, Model, Refused, Waiting
from tests.kernel.transitions import Row, Watch

CHANCE = 0.5
AGENTS = ["default/a", "default/b", "default/c"]
PATTERNS = ["default/order.new", "default/order.*", "default/**"]
TOPICS = ["default/order.new", "default/order.old", "default/log"]
SUBSCRIPTIONS = [f"{pattern}:{name}" for pattern in PATTERNS for name in ("x", "y")]
IDS = [f"m{i}" for i in range(40)]
TIMES = [0, 1, 7, 250, 1_000, 1_024, 1_250, 2_000, 2_500, 5_000, 10_000]
LONG_TIMES = [31_000, 61_000, 3_700_000, WINDOW_MS]
SEEN_ROWS: set[Row] = set()

contracts = st.sampled_from(
    [
        None,
        {"timeout": (1, "drop", False, None, False)},
        {"boom": (2, "success", False, 4_000, False), "other": (1, "dead_letter", False, None, False)},
        {"other": (0, "drop", False, None, False), "timeout": (0, "dead_letter", False, None, False)},
        {"other": (1, "dead_letter", False, 0, True), "timeout": (1, "drop", False, 250, True)},
    ]
)
box_settings = st.fixed_dictionaries(
    {},
    optional={
        "capacity": st.sampled_from([2, 9, 50, 50]),
        "capacity_bytes": st.sampled_from([6, 4_000, 4_000]),
        "schedule": st.sampled_from(["weighted", "strict", "fifo"]),
        "max_consecutive_high": st.sampled_from([1, 2]),
        "lease_ms": st.sampled_from([0, 2_000]),
        "max_retries": st.sampled_from([None, 0, 1]),
        "backoff_ms_base": st.sampled_from([0, 1_000]),
        "max_deferrals": st.sampled_from([0, 1]),
        "ordered": st.booleans(),
        "halt_on_dead_letter": st.booleans(),
        "delivery_semantics": st.sampled_from(["at_least_once"] * 4 + ["at_most_once"]),
        "overflow": st.sampled_from(["reject", "dead_letter", "dead_letter"]),
        "contract": contracts,
        "dead_letters_max": st.sampled_from([1, 2, 4, 100]),
        "dead_letter_bytes_max": st.sampled_from([300, 1_000, 100_000, 100_000]),
    },
)
message_fields = st.fixed_dictionaries(
    {"id": st.sampled_from(IDS), "content": st.sampled_from([b"x"] * 15 + [b"other"])},
    optional={
        "priority": st.integers(1, 5),
        "ttl_ms": st.sampled_from([0, 1, 900, 5_000, 60_000]),
        "delay_ms": st.sampled_from([-5, 0, 0, 1, 700, 1_000, 5_000]),
        "key": st.sampled_from(["k", "k", "l"]),
        "task": st.sampled_from(["k", "t"]),
        "requires_ack": st.booleans(),
        "max_retries": st.sampled_from([0, 1, 2]),
    },
)
agents = st.sampled_from([*AGENTS, *AGENTS[:2] * 2])
codes = st.sampled_from(["other", "boom", "invalid", "rate_limited", "conflict", "fatal", "timeout"])
budgets = st.sampled_from([0] * 8 + [6_000, 12_000])
outcomes = st.sampled_from(["ack", "retry", "retry at once", "die", "drop", "release", "lose"])
RETRY_DELAYS = {"retry": None, "retry at once": 0}
Fields = dict[str, Any]


def envelope(fields: Fields, sender: str) -> Envelope:
    return Envelope(sender=sender, **fields)


def message(fields: Fields, sender: str) -> Message:
    return Message(sender=sender, envelope_priority=fields.get("priority", 3), **fields)


def mailbox_settings(chosen: Fields) -> MailboxSettings:
    contract = chosen.get("contract")
    rules = None if contract is None else {code: Rule(*row) for code, row in contract.items()}
    return MailboxSettings(**{**chosen, "contract": rules})


def plain(chosen: Fields) -> Fields:
    return dict(chosen)


class KernelAndModel(RuleBasedStateMachine):
    """Each rule steps the kernel, then tells the model, then compares the two."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOON
        self.records: list[AnyRecord] = []
        self.model = Model(CHANCE)
        self.waiters: dict[int, Waiter] = {}
        self.names: dict[int, int] = {}
        self.tokens: list[int] = []
        self.history: list[tuple[int, bytes]] = []
        self.snapshot: Snapshot | None = None
        self.drawing: Iterator[AnyPiece] | None = None
        self.pieces: list[AnyPiece] = []
        self.questions = 0
        self.epoch = 0
        self.twin = State()
        self.start(State(), NOON)

    # -- one step

    def perform(self, command: Command[Any], predict: Callable[[], Any], since: int | None = None) -> Step:
        """Step the kernel; let the model predict the answer, and check that both agree.

        `since`: a process starts, and last knew this time.
        """
        step = self.kernel.step(command, self.now)
        self.records += step.records
        model = self.model
        model.sequence = step.base
        model.let_time_pass(self.now, self.facts(step), since)
        passed = sum(self.facts_of_time(step))
        model.sequence += passed
        refused, answer = None, None
        try:
            answer = predict()
        except Refused as refusal:
            refused = str(refusal)
        if not isinstance(command, Stop):
            model.serve()
        assert (step.error.code if step.error else None) == refused
        if refused is None:
            self.compare_answer(command, step, answer)
        self.compare_log(step)
        self.check_release(step)
        self.after(step)
        return step

    def facts(self, step: Step) -> Facts:
        facts = Facts({}, {}, {})
        sequence = step.base
        for record in step.records:
            if isinstance(record, Accepted) and record.envelopes[0].type in ("ack", "nack"):
                notice = record.envelopes[0]
                original = json.loads(notice.content)["originalMessageId"]
                key = (record.mailbox, notice.type, original, notice.sender)
                facts.notices.setdefault(key, []).append((sequence, notice.id, notice.content))
            if isinstance(record, DeadLettered):
                for i, dead in enumerate(record.sequences):
                    facts.deaths[record.mailbox, dead] = sequence + i
            sequence += record.count
        for delivered in step.delivered or ():
            sequences = [lease.sequence for lease in delivered.deliveries.rows()]
            tokens = [lease.token for lease in delivered.deliveries.rows()]
            facts.delivered[self.names[id(delivered.waiter)]] = (sequences, tokens)
        return facts

    def facts_of_time(self, step: Step) -> Iterator[int]:
        """Events that came before the command's own: time passed first."""
        for record in step.records:
            if record.__class__.__name__ in ("Accepted", "Published", "Redriven"):
                first = record.envelopes[0] if isinstance(record, Accepted) else None
                if first is None or first.type not in ("ack", "nack"):
                    return
            yield record.count

    def compare_answer(self, command: Command[Any], step: Step, answer: Any) -> None:
        if isinstance(command, (Send, Publish, Settle)):
            receipts = [(r.id, r.duplicate, r.targets, r.due) for r in step.result]
            assert receipts == answer
            for receipt in step.result:
                assert receipt.sequence in {seen.sequence for seen in self.model.ids.values()}
        elif isinstance(command, Redrive):
            assert [sequence is not None for sequence in step.result] == answer
        elif not isinstance(
            command, (Start, OpenMailbox, RegisterAgent, Subscribe, Release, Expect, Unexpect)
        ):
            assert step.result == answer

    def compare_log(self, step: Step) -> None:
        ended = [(e.mailbox, e.message_id, e.attempt, e.code, e.final_state) for e in step.ended or ()]
        assert sorted(ended) == sorted(self.model.ended), "each failure ends in exactly one place"
        arrived = [(a.mailbox, a.message_id) for a in step.arrived or () if not a.forced]
        assert sorted(arrived) == sorted(self.model.arrived)

    def check_release(self, step: Step) -> None:
        """What must be written and synced before a delivery leaves; tokens only rise."""
        ends = self.kernel.state.sequence
        assert max(step.written, step.synced) <= ends
        granted: dict[int, int] = {}
        sequence = step.base
        for record in step.records:
            sequence += record.count
            if isinstance(record, Granted):
                granted |= {record.token + i: sequence for i in range(record.count)}
        assert sorted(granted) == list(granted)
        for delivered in step.delivered or ():
            for lease in delivered.deliveries.rows():
                assert delivered.written >= granted[lease.token], "the grant is written first"
                entry = self.kernel.state.mailboxes[lease.mailbox].entries.look(lease.sequence)
                made_ready = lease.sequence if entry is None else entry.ready_sequence
                assert ends >= delivered.synced > made_ready, "and what made it ready synced"
                if not self.kernel.holds(lease.token):
                    assert delivered.synced == delivered.written, "at most once: settled and synced"
        if granted:
            assert not self.tokens or min(granted) > max(self.tokens), "a token is never issued twice"
            self.tokens += granted

    def after(self, step: Step) -> None:
        self.watch.look()
        for record in through_the_journal(step.records):
            self.twin.apply(record)
        live = self.kernel.state
        assert durable(self.twin) == durable(live), "replay(records) = live"
        self.compare_ids(live)
        check(live)
        assert view_of_kernel(live) == view_of_model(self.model)
        self.history.append((len(self.records), pickle.dumps(self.model)))
        del self.history[:-6]

    def compare_ids(self, live: State) -> None:
        replayed, held = admitted(self.twin), admitted(live)
        assert all(replayed[name] == found for name, found in held.items())
        for name in replayed.keys() - held.keys():
            seen = replayed[name]
            assert isinstance(seen, Seen)
            assert seen.at <= live.admitted.horizon or seen.at + WINDOW_MS <= self.now

    def start(self, state: State, since: int) -> None:
        self.kernel = Kernel(lambda: CHANCE, state)
        state.admitted.remembered_max = 3
        self.twin.admitted.remembered_max = 3
        self.watch = Watch(state, SEEN_ROWS)
        self.epoch += 1
        self.perform(Start(self.epoch), self.model.start, since)

    # -- mailboxes

    @initialize(a=box_settings, b=box_settings, x=box_settings)
    def some_mailboxes(self, a: Fields, b: Fields, x: Fields) -> None:
        self.open("default/a", a)
        self.open("default/b", b)
        self.subscribe("default/order.*:x", x)
        del self.history[:-1]

    @rule(address=agents, chosen=st.none() | box_settings, budget=st.sampled_from([0, 0, 0, 5_000]))
    def open(self, address: str, chosen: Fields | None, budget: int = 0) -> None:
        command = OpenMailbox(address, None if chosen is None else mailbox_settings(chosen), budget)
        self.perform(command, lambda: self.model.open(address, chosen, budget))

    @rule(address=agents, role=st.sampled_from(["", "tester"]))
    def register(self, address: str, role: str) -> None:
        """To messages it is the same as opening the mailbox."""
        self.perform(RegisterAgent(address, role), lambda: self.model.open(address, None))
        assert self.kernel.state.agents[address].role == role

    @rule(
        address=st.sampled_from(SUBSCRIPTIONS),
        chosen=box_settings,
        owner=st.sampled_from(["", *AGENTS[:2]]),
        budget=st.sampled_from([0, 10_000, 14_000]),
        may_reject=st.booleans(),
    )
    def subscribe(
        self, address: str, chosen: Fields, owner: str = "", budget: int = 0, may_reject: bool = True
    ) -> None:
        pattern = address.partition(":")[0]
        command = Subscribe(pattern, address, mailbox_settings(chosen), owner, budget, may_reject)
        self.perform(
            command,
            lambda: self.model.subscribe(pattern, address, chosen, owner, budget, may_reject=may_reject),
        )

    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        subscribed = [box.address for box in self.model.boxes.values() if box.pattern]
        address = data.draw(st.sampled_from([*subscribed, "default/a", "default/nobody"]))
        self.perform(Unsubscribe(address), lambda: self.model.unsubscribe(address))

    # -- sending

    @rule(
        groups=st.lists(
            st.tuples(agents, st.lists(message_fields, min_size=1, max_size=4)), min_size=1, max_size=2
        ),
        sender=agents,
        budget=budgets,
    )
    def send(self, groups: list[tuple[str, list[Fields]]], sender: str, budget: int = 0) -> None:
        letters = [(to, [envelope(fields, sender) for fields in part]) for to, part in groups]
        twins = [(to, [message(fields, sender) for fields in part]) for to, part in groups]
        command = Send(letters, known=self.stored(), budget=budget)
        self.perform(command, lambda: self.model.send(twins, budget))

    @rule(fields=st.lists(message_fields, min_size=2, max_size=5), to=agents, data=st.data())
    def send_a_batch(self, fields: list[Fields], to: str, data: st.DataObject) -> None:
        """To one of those that are there, with ids of their own."""
        unique = [{**one, "id": f"n{len(self.records)}.{i}"} for i, one in enumerate(fields)]
        there = [address for address in AGENTS if address in self.model.boxes]
        self.send([(data.draw(st.sampled_from(there)), unique)], to)

    @rule(
        topic=st.sampled_from(TOPICS),
        fields=st.lists(message_fields, min_size=1, max_size=3),
        sender=agents,
        budget=budgets,
    )
    def publish(self, topic: str, fields: list[Fields], sender: str, budget: int) -> None:
        envelopes = [envelope(one, sender) for one in fields]
        command = Publish(topic, envelopes, known=self.stored(), budget=budget)
        twins = [message(one, sender) for one in fields]
        self.perform(command, lambda: self.model.publish(topic, twins, budget))

    @rule(count=st.integers(2, 4), sender=agents)
    def publish_often(self, count: int, sender: str) -> None:
        """More than a subscription that nobody reads can take."""
        for i in range(count):
            fields = {"id": f"p{len(self.records)}.{i}", "content": b"x"}
            self.publish("default/order.new", [fields], sender, 0)

    def stored(self) -> dict[tuple[str, str], Seen]:
        """What a store would know: every id ever admitted."""
        return {
            name: Seen(seen.sequence, seen.at, digest_of(seen.content), seen.targets, seen.due, seen.sender)
            for name, seen in self.model.ids.items()
        }

    @rule()
    def forget(self) -> None:
        self.kernel.state.admitted.forget(self.kernel.state.sequence, self.now)

    # -- receiving

    def a_waiter(self, holder: str, max: int, corr: str | None, remote: bool, lease_ms: int) -> Waiter:
        waiter = Waiter(holder, max, corr, remote, lease_ms)
        self.names[id(waiter)] = name = len(self.waiters)
        self.waiters[name] = waiter
        return waiter

    @rule(data=st.data(), max=st.integers(1, 5), wait=st.booleans(), remote=st.booleans())
    def receive(self, data: st.DataObject, max: int, wait: bool, remote: bool) -> None:
        holding = [box.address for box in self.model.boxes.values() if box.messages]
        address = data.draw(st.sampled_from([*holding * 4, *self.model.boxes, "default/nobody"]))
        lease_ms = data.draw(st.sampled_from([0, 0, 3_000]))
        self.take(address, self.a_waiter("h", max, None, remote, lease_ms), wait=wait)

    @rule(data=st.data(), max=st.integers(2, 5))
    def receive_again(self, data: st.DataObject, max: int) -> None:
        self.receive(data, max, wait=False, remote=False)

    @rule(data=st.data(), max=st.integers(1, 2))
    def wait_for_more(self, data: st.DataObject, max: int) -> None:
        self.receive(data, max, wait=True, remote=False)

    def take(self, address: str, waiter: Waiter, *, wait: bool) -> None:
        name = self.names[id(waiter)]
        waiting = Waiting(
            name, waiter.max, waiter.correlation_id, waiter.remote, waiter.lease_ms, waiter.holder
        )
        self.perform(
            Receive(address, waiter, wait),
            lambda: self.model.receive(self.model.box(address), waiting, wait=wait),
        )

    @rule(data=st.data(), max=st.integers(2, 5), outcomes=st.lists(outcomes, min_size=1, max_size=3))
    def work(self, data: st.DataObject, max: int, outcomes: list[str]) -> None:
        """Receive a run, and settle some of it in any order."""
        before = len(self.tokens)
        self.receive(data, max, wait=False, remote=False)
        for outcome in outcomes:
            held = [token for token in self.tokens[before:] if token in self.kernel.state.leases]
            if held:
                self.end(data.draw(st.sampled_from(held)), outcome)

    @rule(data=st.data(), outcome=outcomes)
    def work_on_one_lane(self, data: st.DataObject, outcome: str) -> None:
        """Messages of one key, a run of them out, one of which ends in some way."""
        fields = {"content": b"x", "key": "k", "priority": data.draw(st.integers(1, 5))}
        ids = [f"l{len(self.records)}.{i}" for i in range(3)]
        self.send([("default/a", [{**fields, "id": id} for id in ids])], "default/b")
        self.work(data, 4, [outcome])

    def end(self, token: int, outcome: str) -> None:
        if outcome in ("ack", "drop"):
            drop = outcome == "drop"
            self.perform(Ack([token], drop), lambda: self.model.ack([token], drop=drop))
        elif outcome == "release":
            self.perform(Release([token]), lambda: self.model.release([token]))
        elif outcome == "lose":
            self.tick(61_000)
        else:
            code, delay_ms = ("fatal", None) if outcome == "die" else ("other", RETRY_DELAYS[outcome])
            self.perform(
                Nack(token, code, delay_ms=delay_ms),
                lambda: self.model.nack(token, code, retryable=True, delay_ms=delay_ms, until=None),
            )

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def forgo(self, data: st.DataObject) -> None:
        address, name = data.draw(st.sampled_from(self.waiting()))
        box = self.model.boxes[address]
        box.waiting = [waiting for waiting in box.waiting if waiting.name != name]
        self.perform(Forgo(address, self.waiters[name]), lambda: True)

    def waiting(self) -> list[tuple[str, int]]:
        return [(box.address, waiting.name) for box in self.model.boxes.values() for waiting in box.waiting]

    @precondition(lambda self: "default/a" in self.model.boxes and "default/b" in self.model.boxes)
    @rule(fields=message_fields, wait=st.booleans())
    def ask(self, fields: Fields, wait: bool) -> None:
        """`a` asks `b`, and waits for the answer by its correlation id."""
        self.questions += 1
        corr = f"q{self.questions}"
        fields = {**fields, "id": corr, "correlation_id": corr, "type": "question"}
        self.perform(Expect("default/a", corr), lambda: self.model.boxes["default/a"].expected.append(corr))
        sent = message(fields, "default/a")
        self.perform(
            Send([("default/b", [envelope(fields, "default/a")])]),
            lambda: self.model.send([("default/b", [sent])]),
        )
        if wait:
            self.take("default/a", self.a_waiter("asker", 1, corr, False, 0), wait=True)

    @precondition(lambda self: self.asked())
    @rule(data=st.data(), delay_ms=st.sampled_from([0, 0, 1_000]), ttl_ms=st.sampled_from([0, 900]))
    def answer(self, data: st.DataObject, delay_ms: int, ttl_ms: int) -> None:
        corr = data.draw(st.sampled_from(self.asked()))
        fields = {
            "id": f"answer-{corr}-{len(self.records)}",
            "content": b"42",
            "type": "answer",
            "correlation_id": corr,
            "delay_ms": delay_ms,
            "ttl_ms": ttl_ms,
        }
        sent = message(fields, "default/b")
        self.perform(
            Send([("default/a", [envelope(fields, "default/b")])]),
            lambda: self.model.send([("default/a", [sent])]),
        )

    @precondition(lambda self: self.asked())
    @rule(data=st.data())
    def look_for_the_answer(self, data: st.DataObject) -> None:
        corr = data.draw(st.sampled_from(self.asked()))
        self.take("default/a", self.a_waiter("asker", 1, corr, False, 0), wait=False)

    @precondition(lambda self: self.forgotten())
    @rule(data=st.data())
    def expect_again(self, data: st.DataObject) -> None:
        """A question whose expectation ended, maybe by a restart: what waits for it is kept apart again."""
        corr = data.draw(st.sampled_from(self.forgotten()))
        box = self.model.boxes["default/a"]
        self.perform(Expect("default/a", corr), lambda: box.expected.append(corr))

    @precondition(lambda self: self.forgotten())
    @rule(data=st.data())
    def ask_for_what_nothing_expects(self, data: st.DataObject) -> None:
        corr = data.draw(st.sampled_from(self.forgotten()))
        box = self.model.boxes["default/a"]
        if any(box.ordering(m) is not None for m in box.messages if m.correlation_id == corr):
            return  # while it is out it holds its lane in the model, which knows no other reason
        box.expected.append(corr)
        self.take("default/a", self.a_waiter("asker", 1, corr, False, 0), wait=False)
        box.expected.remove(corr)

    def forgotten(self) -> list[str]:
        """Questions that are not expected, and whose answers are not out."""
        box = self.model.boxes.get("default/a")
        if box is None:
            return []
        out = {m.correlation_id for m in box.messages if m.token is not None}
        asked = [f"q{n}" for n in range(1, self.questions + 1)]
        return [corr for corr in asked if corr not in box.expected and corr not in out]

    def asked(self) -> list[str]:
        box = self.model.boxes.get("default/a")
        return list(box.expected) if box else []

    @precondition(lambda self: self.asked())
    @rule(data=st.data())
    def unexpect(self, data: st.DataObject) -> None:
        corr = data.draw(st.sampled_from(self.asked()))
        box = self.model.boxes["default/a"]
        if any(m.correlation_id == corr and m.token is not None for m in box.messages):
            return
        name = next((w.name for w in box.waiting if w.correlation_id == corr), None)
        if name is not None:
            box.waiting = [w for w in box.waiting if w.name != name]
            self.perform(Forgo("default/a", self.waiters[name]), lambda: True)
        self.perform(Unexpect("default/a", corr), lambda: box.expected.remove(corr))

    # -- settling

    def a_token(self, data: st.DataObject) -> int:
        """Mostly one that is held, sometimes a stale one."""
        held = sorted(self.kernel.state.leases)
        return data.draw(st.sampled_from(held * 3 + self.tokens[-6:]))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), count=st.integers(1, 4), drop=st.sampled_from([False, False, True]))
    def ack(self, data: st.DataObject, count: int, drop: bool) -> None:
        tokens = [self.a_token(data) for _ in range(count)]
        self.perform(Ack(tokens, drop), lambda: self.model.ack(tokens, drop=drop))

    @precondition(lambda self: self.tokens)
    @rule(
        data=st.data(),
        code=codes,
        retryable=st.sampled_from([True, True, False]),
        delay_ms=st.sampled_from([None, None, 0, 700]),
        until=st.sampled_from([None, None, None, -1, 1_500]),
    )
    def nack(
        self, data: st.DataObject, code: str, retryable: bool, delay_ms: int | None, until: int | None
    ) -> None:
        token = self.a_token(data)
        when = None if until is None else self.now + until
        self.perform(
            Nack(token, code, retryable=retryable, delay_ms=delay_ms, until=when),
            lambda: self.model.nack(token, code, retryable=retryable, delay_ms=delay_ms, until=when),
        )

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def nack_plainly(self, data: st.DataObject) -> None:
        self.nack(data, "other", retryable=True, delay_ms=None, until=None)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), ms=st.sampled_from([100, 5_000, 40_000]))
    def extend(self, data: st.DataObject, ms: int) -> None:
        token = self.a_token(data)
        self.perform(Extend(token, ms), lambda: self.model.extend(token, ms))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), count=st.integers(1, 3))
    def release(self, data: st.DataObject, count: int) -> None:
        tokens = [self.a_token(data) for _ in range(count)]
        self.perform(Release(tokens), lambda: self.model.release(tokens))

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), to=agents, fields=st.lists(message_fields, min_size=1, max_size=2))
    def settle(self, data: st.DataObject, to: str, fields: list[Fields]) -> None:
        token = self.a_token(data)
        sends = [(to, [envelope(one, "default/a") for one in fields])]

        def predict() -> Any:
            box, held = self.model.held(token)
            receipts = self.model.send([(to, [message(one, "default/a") for one in fields])])
            self.model.finish(box, [held])
            return receipts

        self.perform(Settle(token, sends, known=self.stored()), predict)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        pending = [(box.address, m.sequence) for box in self.model.boxes.values() for m in box.messages]
        address, sequence = data.draw(st.sampled_from([*pending, ("default/a", 0)]))
        self.perform(Complete(address, sequence), lambda: self.model.complete(address, sequence))

    # -- dead letters and pending messages

    def some_letters(self, data: st.DataObject, count: int) -> list[tuple[str, int]]:
        names = [(letter.mailbox, letter.dead_sequence) for letter in self.model.letters]
        names = names * 4 + [("default/a", 1)]
        return [data.draw(st.sampled_from(names)) for _ in range(count)]

    @precondition(lambda self: self.model.letters)
    @rule(
        data=st.data(),
        count=st.integers(1, 3),
        to=st.sampled_from([None, None, "default/a"]),
        edited=st.booleans(),
    )
    def redrive(self, data: st.DataObject, count: int, to: str | None, edited: bool) -> None:
        names = self.some_letters(data, count)
        id = f"edited-{len(self.records)}"

        def edit(name: tuple[str, int]) -> Envelope | None:
            letter = self.kernel.state.letters.find(*name)
            if letter is None:
                return None
            old = letter.envelope
            return msgspec.structs.replace(old, id=id, content=b"edited", origin=old.id)

        def edit_twin(old: Message) -> Message:
            old.origin, old.id, old.content = old.id, id, b"edited"
            return old

        self.perform(
            Redrive(names, to, [edit(name) for name in names] if edited else None),
            lambda: self.model.redrive(names, to, edit_twin if edited else None),
        )

    @precondition(lambda self: self.model.letters)
    @rule(data=st.data(), count=st.integers(1, 2))
    def purge(self, data: st.DataObject, count: int) -> None:
        names = self.some_letters(data, count)
        self.perform(PurgeDeadLetters(names), lambda: self.model.purge(names))

    @rule(data=st.data(), address=agents, priority=st.integers(1, 5))
    def reprioritise(self, data: st.DataObject, address: str, priority: int) -> None:
        there = [m.id for box in self.model.boxes.values() for m in box.messages]
        ids = data.draw(st.none() | st.frozensets(st.sampled_from([*there, "none"])))
        self.perform(
            Reprioritise(address, ids, priority), lambda: self.model.reprioritise(address, ids, priority)
        )

    @precondition(lambda self: any(box.delayed for box in self.kernel.state.mailboxes.values()))
    @rule(address=st.none() | agents)
    def force_delayed(self, address: str | None) -> None:
        self.perform(ForceDelayed(address), lambda: self.model.force_delayed(address))

    # -- time, crashes, snapshots

    @rule(ms=st.sampled_from(TIMES))
    def advance(self, ms: int) -> None:
        self.now += ms

    @rule(ms=st.sampled_from(TIMES))
    def tick(self, ms: int) -> None:
        self.now += ms
        self.perform(Tick(), lambda: len(self.model.arrived))

    @rule(ms=st.sampled_from(LONG_TIMES))
    def tick_much_later(self, ms: int) -> None:
        self.tick(ms)

    @rule(data=st.data(), how=st.sampled_from(["crash", "crash", "stop", "stop and deliver"]))
    def go_down(self, data: st.DataObject, how: str) -> None:
        if how == "crash":
            self.crash(data, data.draw(st.sampled_from(TIMES)))
        else:
            self.stop_and_start(how == "stop and deliver")

    def crash(self, data: st.DataObject, ms: int) -> None:
        """The last steps were not synced and are lost; another process starts."""
        lost = data.draw(st.integers(0, len(self.history) - 1))
        count, model = self.history[len(self.history) - 1 - lost]
        del self.records[count:]
        self.model = pickle.loads(model)
        self.now += ms
        self.come_back(replay(self.records))

    def stop_and_start(self, deliver_delayed: bool) -> None:
        self.perform(Stop(deliver_delayed), lambda: self.model.stop(deliver_delayed=deliver_delayed))
        self.come_back(replay(self.records))

    def come_back(self, state: State) -> None:
        self.give_up_snapshot()
        self.history = []
        self.twin = replay(self.records)
        assert durable(state) == durable(self.twin)
        self.start(state, state.now)

    @precondition(lambda self: self.snapshot is None)
    @rule(data=st.data(), drawn=st.integers(0, 6), outcome=outcomes)
    def snapshot_while_working(self, data: st.DataObject, drawn: int, outcome: str) -> None:
        self.begin_a_snapshot()
        if drawn:
            self.draw_pieces(drawn, take_over=False)
        self.work(data, 3, [outcome, "ack"])
        if self.snapshot is not None:
            self.draw_pieces(1_000, take_over=False)

    @precondition(lambda self: self.snapshot is None)
    @rule()
    def begin_a_snapshot(self) -> None:
        self.snapshot = Snapshot(self.kernel.state)
        self.drawing = self.snapshot.pieces()
        self.pieces = []

    @precondition(lambda self: self.snapshot is not None)
    @rule(count=st.integers(1, 4), take_over=st.booleans())
    def draw_pieces(self, count: int, take_over: bool) -> None:
        assert self.snapshot is not None
        assert self.drawing is not None
        for _ in range(count):
            piece = next(self.drawing, None)
            if piece is None:
                self.finish_the_snapshot(self.snapshot.sequence, take_over=take_over)
                return
            self.pieces += through_a_checkpoint([piece])

    def finish_the_snapshot(self, sequence: int, *, take_over: bool) -> None:
        later: list[AnyRecord] = []
        end = self.kernel.state.sequence
        for record in reversed(self.records):
            if end <= sequence:
                break
            later.insert(0, record)
            end -= record.count
        restored = replay(later, restore(self.pieces))
        live = self.kernel.state
        assert durable(restored) == durable(live), "snapshot + later records = live"
        held, again = admitted(live), admitted(restored)
        assert all(again[name] == found for name, found in held.items())
        self.give_up_snapshot()
        if take_over:
            self.come_back(restored)

    def give_up_snapshot(self) -> None:
        if self.snapshot is not None:
            self.snapshot.close()
            assert self.kernel.state.keep is None
        self.snapshot = None


def view_of_kernel(state: State) -> dict[str, Any]:
    boxes = {}
    for address, mailbox in state.mailboxes.items():
        counters = {name: count for name, count in msgspec.structs.asdict(mailbox.counters).items() if count}
        entries = [
            (
                (e.sequence, e.envelope.id, e.envelope.content, e.envelope.origin),
                (e.accepted_at, e.due_at, e.ready_at),
                (e.priority, e.attempts, e.deferrals, e.redrives, e.completed),
                tuple(failure.code for failure in e.failures or ()),
                (e.lease.token, e.lease.deadline, e.lease.grant.remote) if e.lease else None,
            )
            for e in mailbox.entries.values()
        ]
        waiting = len(mailbox.waiters) + len(mailbox.askers)
        starved = mailbox.ready.low_starvation_count
        suspended = state.subscriptions.suspended(address) or ""
        boxes[address] = (counters, entries, sorted(mailbox.halted), waiting, starved, suspended)
    letters = {
        (x.mailbox, x.dead_sequence): (
            (x.sequence, x.envelope.id, x.reason, x.status, x.attempts, x.redrives),
            tuple(failure.code for failure in x.failures),
        )
        for x in state.letters
    }
    return {"boxes": boxes, "letters": letters, "unrouted": state.unrouted}


def view_of_model(model: Model) -> dict[str, Any]:
    boxes = {}
    for address, box in model.boxes.items():
        messages = [
            (
                (m.sequence, m.id, m.content, m.origin),
                (m.accepted_at, m.due_at, m.ready_at),
                (m.priority, m.attempts, m.deferrals, m.redrives, m.completed),
                tuple(m.failures),
                None if m.token is None else (m.token, m.deadline, m.remote),
            )
            for m in box.messages
        ]
        counters = {name: count for name, count in box.counters.items() if count}
        waiting = len(box.waiting)
        boxes[address] = (counters, messages, sorted(box.halted), waiting, box.starved, box.suspended)
    letters = {
        (x.mailbox, x.dead_sequence): (
            (x.message.sequence, x.message.id, x.reason, x.status, x.message.attempts, x.message.redrives),
            tuple(x.message.failures),
        )
        for x in model.letters
    }
    return {"boxes": boxes, "letters": letters, "unrouted": model.unrouted}


SOAK = os.environ.get("RELAYMESH_MODEL") == "soak"
KernelAndModel.TestCase.settings = settings(
    max_examples=5_000 if SOAK else 250,
    stateful_step_count=100 if SOAK else 50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestKernelAndModel = KernelAndModel.TestCase
