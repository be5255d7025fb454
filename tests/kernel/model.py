"""The kernel as one would write it without a thought for speed: lists, dicts and searches.

It shares no code with the kernel and has none of its structures: no lanes, no queues, no timers.
Every question ("what may go now?") is answered by looking at all messages. What no rule fixes
(tokens, sequences of notices, names of dead letters) it is told afterwards in `Facts`.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

DAY_MS = 24 * 3_600_000
TTL_MS = 3_600_000
LEASES_MS = {1: 5_000, 2: 10_000, 3: 30_000, 4: 60_000, 5: 60_000}
TIERS = {1: 0, 2: 0, 3: 1, 4: 2, 5: 2}
RULES: dict[str, tuple[int, str, bool, int | None, bool]] = {
    "timeout": (3, "dead_letter", True, None, True),
    "invalid": (0, "dead_letter", False, None, True),
    "rate_limited": (5, "dead_letter", False, None, True),
    "conflict": (0, "success", False, None, True),
    "duplicate": (0, "success", False, None, True),
    "fatal": (0, "dead_letter", True, None, True),
    "other": (3, "dead_letter", False, None, True),
}
"""Retries, exit, alert, delay before each retry, and whether `max_retries` takes the place of the retries."""
SETTINGS: dict[str, Any] = {
    "capacity": 100_000,
    "capacity_bytes": 268_435_456,
    "schedule": "weighted",
    "max_consecutive_high": 100,
    "lease_ms": 0,
    "max_retries": None,
    "backoff_ms_base": 1_000,
    "backoff_ms_cap": 60_000,
    "backoff_jitter": 0.25,
    "max_deferrals": 100,
    "ordered": False,
    "halt_on_dead_letter": False,
    "delivery_semantics": "at_least_once",
    "overflow": "reject",
    "contract": None,
    "dead_letters_max": 100_000,
    "dead_letter_bytes_max": 268_435_456,
}
MESSAGE_BYTES, MAILBOX_BYTES, FAILURE_BYTES, EXPECTATION_BYTES = 512, 4_096, 128, 512


class Refused(Exception):
    """With the error code that the kernel must give."""


@dataclass(eq=False)
class Message:
    id: str
    content: bytes
    sender: str
    type: str = "message"
    priority: int = 3
    ttl_ms: int = TTL_MS
    delay_ms: int = 0
    key: str | None = None
    task: str | None = None
    correlation_id: str | None = None
    requires_ack: bool = False
    max_retries: int | None = None
    origin: str | None = None
    envelope_priority: int = 3
    notice: bool = False

    sequence: int = -1
    accepted_at: int = 0
    due_at: int = 0
    ready_at: int = 0
    attempts: int = 0
    deferrals: int = 0
    waited: int = 0
    redrives: int = 0
    completed: bool = False
    failures: list[str] = field(default_factory=list)
    failure_bytes: int = 0

    token: int | None = None
    holder: str = ""
    remote: bool = False
    lease_ms: int = 0
    deadline: int = 0
    deadline_set: int = 0

    @property
    def size(self) -> int:
        return len(self.content) + self.failure_bytes

    def failed(self, code: str, text: str = "") -> None:
        self.failures.append(code)
        self.failure_bytes += FAILURE_BYTES + len(code) + len(text)

    def expires_at(self) -> int | None:
        return self.due_at + self.ttl_ms + self.waited if self.ttl_ms else None


@dataclass(eq=False)
class Waiting:
    """Somebody who waits. `name` is what the kernel's waiter is found by."""

    name: int
    max: int
    correlation_id: str | None
    remote: bool
    lease_ms: int
    holder: str = "h"


@dataclass(eq=False)
class Box:
    address: str
    settings: dict[str, Any]
    pattern: str | None = None
    owner: str = ""
    owner_budget: int = 0
    suspended: str = ""
    messages: list[Message] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    halted: dict[int, str] = field(default_factory=dict)
    credits: list[int] = field(default_factory=lambda: [8, 3, 1])
    above: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0})
    starved: int = 0
    waiting: list[Waiting] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def lane(self, message: Message) -> str | None:
        if message.correlation_id in self.expected:
            return None
        return self.ordering(message)

    def ordering(self, message: Message) -> str | None:
        if self.settings["ordered"]:
            return ""
        if message.key is not None:
            return f"key {message.key}"
        return None if message.task is None else f"task {message.task}"

    def room_for(self, sizes: list[int]) -> bool:
        held = sum(message.size for message in self.messages)
        too_many = len(self.messages) + len(sizes) > self.settings["capacity"]
        too_big = held + sum(sizes) > self.settings["capacity_bytes"]
        return not too_many and not too_big


@dataclass(eq=False)
class Letter:
    mailbox: str
    dead_sequence: int
    message: Message
    reason: str
    payer: str
    status: str = "pending"


@dataclass(eq=False)
class Admitted:
    sequence: int
    sender: str
    content: bytes
    at: int
    due: int
    targets: int
    pending: bool


@dataclass
class Facts:
    """What a step tells of things that no rule decides."""

    notices: dict[tuple[str, str, str, str], list[tuple[int, str, bytes]]]
    """(mailbox, kind, original id, sender) to (sequence, id, content)."""
    deaths: dict[tuple[str, int], int]
    """(mailbox, sequence) to the dead letter's own sequence."""
    delivered: dict[int, tuple[list[int], list[int]]]
    """Name of the waiter to the sequences it was given, and their tokens; in the order of the step."""


def lane_place(message: Message) -> tuple[int, int]:
    return message.due_at, message.sequence


def queue_place(message: Message) -> tuple[int, int]:
    return message.ready_at, message.sequence


@dataclass
class Model:
    chance: float
    now: int = 0
    boxes: dict[str, Box] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)
    ids: dict[tuple[str, str], Admitted] = field(default_factory=dict)
    unrouted: int = 0
    clock_ties: int = 0
    sequence: int = 0
    """What the command's own first event will have: the caller tells."""
    facts: Facts = field(default_factory=lambda: Facts({}, {}, {}))
    ended: list[tuple[str, str, int, str, str]] = field(default_factory=list)
    arrived: list[tuple[str, str]] = field(default_factory=list)

    # -- time

    def let_time_pass(self, now: int, facts: Facts, since: int | None = None) -> None:
        before = self.now if since is None else since
        self.now, self.facts = now, facts
        self.ended, self.arrived = [], []
        for box in self.boxes.values():
            for message in box.messages:
                if before < message.due_at <= now and message.delay_ms > 0:
                    self.arrived.append((box.address, message.id))
        if since is None:
            self.expire_leases()
            self.expire_messages()

    def expire_leases(self) -> None:
        over = [
            (message.deadline, message.deadline_set, message.token, box, message)
            for box in self.boxes.values()
            for message in box.messages
            if message.token is not None and message.deadline <= self.now
        ]
        for *_, token, box, message in sorted(over, key=lambda row: row[:3]):
            if message.token == token:
                text = f"no ack, nack or extend from {message.holder} before the lease ended"
                self.fail(box, message, "timeout", text=text)

    def expire_messages(self) -> None:
        """Noticed by the second: at the end of the 1024 ms in which the TTL ends."""
        for box in list(self.boxes.values()):
            late = []
            for message in box.messages:
                expires = message.expires_at()
                if expires is not None and message.token is None and (expires // 1024 + 1) * 1024 <= self.now:
                    late.append(message)
            self.expire(box, late)

    # -- mailboxes

    def open(self, address: str, settings: dict[str, Any] | None, budget: int = 0) -> None:
        box = self.boxes.get(address)
        if box is None:
            self.require_budget({address: MAILBOX_BYTES}, budget)
            self.boxes[address] = Box(address, {**SETTINGS, **(settings or {})})
        elif settings is not None:
            self.configure(box, {**SETTINGS, **settings})

    def configure(self, box: Box, settings: dict[str, Any]) -> None:
        before, box.settings = box.settings, settings
        if (before["ordered"], before["schedule"]) != (settings["ordered"], settings["schedule"]):
            box.credits, box.above = [8, 3, 1], {1: 0, 2: 0}

    def subscribe(
        self,
        pattern: str,
        address: str,
        settings: dict[str, Any],
        owner: str = "",
        budget: int = 0,
        *,
        may_reject: bool = True,
    ) -> None:
        box = self.boxes.get(address)
        wanted = {**SETTINGS, **settings}
        if not may_reject and (box is None or box.settings != wanted):
            wanted["overflow"] = "dead_letter"
        if owner and (box is None or box.pattern != pattern):
            self.require_budget({f"subscriptions of {owner}": MAILBOX_BYTES}, budget)
        before = box and (box.settings, box.pattern, box.owner, box.owner_budget)
        self.open(address, wanted)
        box = self.boxes[address]
        box.pattern, box.owner, box.owner_budget = pattern, owner, budget if owner else 0
        if before != (wanted, box.pattern, box.owner, box.owner_budget):
            box.suspended = ""

    # -- what is kept, and who pays for it

    def account(self, box: Box) -> str:
        return f"subscriptions of {box.owner}" if box.owner else ""

    def payer(self, box: Box, message: Message) -> str:
        notice = message.type in ("ack", "nack")
        return self.account(box) or (box.address if notice else message.sender)

    def kept(self, payer: str) -> int:
        kept = 0
        for box in self.boxes.values():
            if payer == (self.account(box) or box.address):
                kept += MAILBOX_BYTES
            if payer == box.address:
                kept += sum(EXPECTATION_BYTES + 4 * len(id) for id in box.expected)
            paid = [message for message in box.messages if self.payer(box, message) == payer]
            kept += sum(message.size + MESSAGE_BYTES for message in paid)
        letters = [letter.message for letter in self.letters if letter.payer == payer]
        return kept + sum(message.size + MESSAGE_BYTES for message in letters)

    def require_budget(self, asked: dict[str, int], budget: int) -> None:
        if budget and any(self.kept(payer) + size > budget for payer, size in asked.items()):
            raise Refused("OVER_BUDGET")

    def pending_letters(self, box: Box) -> tuple[int, int]:
        mine = [x for x in self.letters if x.mailbox == box.address and x.status == "pending"]
        return len(mine), sum(letter.message.size for letter in mine)

    def letters_full(self, box: Box) -> bool:
        count, size = self.pending_letters(box)
        return bool(
            count >= box.settings["dead_letters_max"] or size >= box.settings["dead_letter_bytes_max"]
        )

    def forget_redriven(self, box: Box) -> None:
        """The oldest of them go until all letters fit."""
        mine = [letter for letter in self.letters if letter.mailbox == box.address]
        mine.sort(key=lambda letter: letter.dead_sequence)
        for old in [letter for letter in mine if letter.status == "redriven"]:
            size = sum(letter.message.size for letter in mine)
            if (
                len(mine) <= box.settings["dead_letters_max"]
                and size <= box.settings["dead_letter_bytes_max"]
            ):
                return
            mine.remove(old)
            self.letters.remove(old)

    def unsubscribe(self, address: str) -> int:
        box = self.boxes.get(address)
        if box is None or box.pattern is None:
            raise Refused("NOT_FOUND")
        del self.boxes[address]
        for waiting in box.waiting:
            assert self.facts.delivered.pop(waiting.name) == ([], []), "whoever waits gets nothing"
        dropped = list(box.messages)
        for message in dropped:
            self.remove(box, message)
            self.refuse(box, message, "unsubscribed", "dropped")
        return len(dropped)

    def route(self, topic: str) -> list[Box]:
        """Also those that are suspended."""
        return [box for box in self.boxes.values() if box.pattern and covers(box.pattern, topic)]

    def reach(self, topic: str, new: list[Message], budget: int) -> list[Box]:
        """Who gets these. A subscription that can take none is suspended, until it has room again."""
        asked: Counter[str] = Counter()
        route = self.route(topic)
        closed: dict[str, str] = {}
        for box in [box for box in route if not box.suspended]:
            closed[box.address] = self.obstacle(box, new, asked)
        for box in [box for box in route if box.suspended]:
            closed[box.address] = box.suspended
            if self.relieved(box) and not self.obstacle(box, new, asked):
                closed[box.address] = ""
        reached = [box for box in route if not closed[box.address]]
        for box in reached:
            if box.settings["overflow"] == "reject" and not box.room_for([m.size for m in new]):
                raise Refused("MAILBOX_FULL")
        paid: Counter[str] = Counter()
        for message in new:
            paid[message.sender] += (message.size + MESSAGE_BYTES) * sum(not box.owner for box in reached)
        self.require_budget({payer: size for payer, size in paid.items() if size}, budget)
        for box in route:
            box.suspended = closed[box.address]
            box.counters["skipped"] += len(new) if box.suspended else 0
        return reached

    def obstacle(self, box: Box, new: list[Message], asked: Counter[str]) -> str:
        account = self.account(box)
        if account and box.owner_budget:
            cost = sum(message.size + MESSAGE_BYTES for message in new)
            if self.kept(account) + asked[account] + cost > box.owner_budget:
                return "over_budget"
            asked[account] += cost
        if self.letters_full(box):
            if box.settings["overflow"] == "reject":
                raise Refused("DEAD_LETTERS_FULL")
            return "dead_letters_full"
        fit = [i for i in range(len(new)) if box.room_for([m.size for m in new[: i + 1]])]
        over = new[len(fit) :]
        if over and box.settings["overflow"] == "dead_letter":
            count, size = self.pending_letters(box)
            too_many = count + len(over) > box.settings["dead_letters_max"]
            too_big = size + sum(message.size for message in over) > box.settings["dead_letter_bytes_max"]
            return "dead_letters_full" if too_many or too_big else ""
        return ""

    def relieved(self, box: Box) -> bool:
        count, size = self.pending_letters(box)
        half = (box.settings["dead_letters_max"] / 2, box.settings["dead_letter_bytes_max"] / 2)
        paid = self.kept(self.account(box)) if box.owner and box.owner_budget else 0
        return count <= half[0] and size <= half[1] and paid <= box.owner_budget / 2

    # -- messages come in

    def send(
        self, groups: list[tuple[str, list[Message]]], budget: int = 0
    ) -> list[tuple[str, bool, int, int]]:
        """Answers (id, duplicate, targets, due) for each. All or none."""
        fresh: list[tuple[str, list[Box], Message]] = []
        answers = []
        boxes = [self.box(address) for address, _ in groups]
        for box, (address, messages) in zip(boxes, groups, strict=True):
            answers += self.examine(address, [box], messages, fresh)
        for box in boxes:
            self.require_room(box, fresh)
        asked: Counter[str] = Counter()
        for _, _, message in fresh:
            asked[message.sender] += message.size + MESSAGE_BYTES
        self.require_budget(asked, budget)
        return self.let_in(fresh, answers, topic=False)

    def publish(
        self, topic: str, messages: list[Message], budget: int = 0
    ) -> list[tuple[str, bool, int, int]]:
        fresh: list[tuple[str, list[Box], Message]] = []
        boxes: list[Box] = []
        answers = self.examine(f"topic:{topic}", boxes, messages, fresh)
        if fresh:
            boxes += self.reach(topic, [message for *_, message in fresh], budget)
        return self.let_in(fresh, answers, topic=True)

    def examine(
        self,
        target: str,
        boxes: list[Box],
        messages: list[Message],
        fresh: list[tuple[str, list[Box], Message]],
    ) -> list[tuple[str, str, bool]]:
        answers = []
        for message in messages:
            known = self.known(target, message.id)
            twins = [new for to, _, new in fresh if (to, new.id) == (target, message.id)]
            originals = [(twin.sender, twin.content) for twin in twins]
            if known:
                originals.append((known.sender, known.content))
            if any(original != (message.sender, message.content) for original in originals):
                raise Refused("CONFLICT")
            if not known and not twins:
                fresh.append((target, boxes, message))
            answers.append((target, message.id, bool(known or twins)))
        return answers

    def require_room(self, box: Box, fresh: list[tuple[str, list[Box], Message]]) -> None:
        sizes = [len(message.content) for _, boxes, message in fresh if box in boxes]
        if sizes and not box.room_for(sizes):
            raise Refused("MAILBOX_FULL")
        if sizes and self.letters_full(box):
            raise Refused("DEAD_LETTERS_FULL")

    def let_in(
        self,
        fresh: list[tuple[str, list[Box], Message]],
        answers: list[tuple[str, str, bool]],
        *,
        topic: bool,
    ) -> list[tuple[str, bool, int, int]]:
        for sequence, (target, boxes, message) in enumerate(fresh, self.sequence):
            message.sequence, message.accepted_at = sequence, self.now
            message.due_at = message.ready_at = self.now + max(0, message.delay_ms)
            targets = len(boxes) if topic else 1
            self.ids[target, message.id] = Admitted(
                message.sequence,
                message.sender,
                message.content,
                self.now,
                message.due_at,
                targets,
                not topic,
            )
            self.unrouted += topic and not boxes
        receipts = []
        for target, id, duplicate in answers:
            seen = self.ids[target, id]
            receipts.append((id, duplicate, seen.targets, seen.due if seen.due > seen.at else 0))
        self.enter(fresh)
        return receipts

    def enter(self, fresh: list[tuple[str, list[Box], Message]]) -> None:
        too_many: list[tuple[Box, list[Message]]] = []
        for box in self.boxes.values():
            new = [replace(message, failures=[]) for _, into, message in fresh if box in into]
            fit = [i for i in range(len(new)) if box.room_for([len(m.content) for m in new[: i + 1]])]
            too_many.append((box, new[len(fit) :]))
            box.messages += new
            box.counters["accepted"] += len(new)
        for box, overflowing in too_many:
            self.bury(box, overflowing, "mailbox_full")

    def known(self, target: str, id: str) -> Admitted | None:
        known = self.ids.get((target, id))
        return None if known and not known.pending and known.at + DAY_MS <= self.now else known

    def box(self, address: str) -> Box:
        if address not in self.boxes:
            raise Refused("UNKNOWN_RECIPIENT")
        return self.boxes[address]

    # -- deliveries

    def candidates(self, box: Box, taken: list[Message]) -> list[tuple[int, Message]]:
        """What may go next, each with the priority it competes with."""
        free = [m for m in box.messages if m.token is None and m not in taken and m.due_at <= self.now]
        found: list[tuple[int, Message]] = []
        for message in free:
            lane = box.lane(message)
            if lane is None:
                if message.ready_at <= self.now and message.correlation_id not in box.expected:
                    found.append((message.priority, message))
                continue
            mates = [mate for mate in free if box.lane(mate) == lane]
            out = any(mate.token is not None and box.lane(mate) == lane for mate in box.messages)
            first = message is min(mates, key=lane_place)
            if first and not out and message.ready_at <= self.now and lane not in box.halted.values():
                found.append((min(mate.priority for mate in mates), message))
        return found

    def next(self, box: Box, taken: list[Message]) -> Message | None:
        found = self.candidates(box, taken)
        schedule = box.settings["schedule"]
        if schedule == "fifo":
            return min((message for _, message in found), key=queue_place, default=None)
        return self.next_strict(box, found) if schedule == "strict" else self.next_weighted(box, found)

    def next_weighted(self, box: Box, found: list[tuple[int, Message]]) -> Message | None:
        for _ in range(2):
            for tier in range(3):
                here = [row for row in found if TIERS[row[0]] == tier]
                if here and box.credits[tier]:
                    box.credits[tier] -= 1
                    return first_of(here)
            box.credits = [8, 3, 1]
        return None

    def next_strict(self, box: Box, found: list[tuple[int, Message]]) -> Message | None:
        """`above[tier]`: how many of higher tiers went in a row since this one had its turn."""
        for tier in (2, 1):
            if box.above[tier] >= box.settings["max_consecutive_high"]:
                box.above[tier] = 0
                here = [row for row in found if TIERS[row[0]] == tier]
                if here:
                    box.starved += 1
                    return first_of(here)
        if not found:
            return None
        chosen = first_of(found)
        went = next(TIERS[priority] for priority, message in found if message is chosen)
        box.above = {tier: box.above[tier] + 1 if went < tier else 0 for tier in (1, 2)}
        return chosen

    def pick(self, box: Box, waiting: Waiting) -> tuple[list[Message], list[Message]]:
        picked: list[Message] = []
        expired: list[Message] = []
        if waiting.correlation_id is not None:
            answers = [
                m
                for m in box.messages
                if m.correlation_id == waiting.correlation_id and m.correlation_id in box.expected
            ]
            ready = [m for m in answers if m.token is None and m.ready_at <= self.now]
            first = min(ready, key=queue_place, default=None)
            if first is not None:
                (expired if self.is_expired(first) else picked).append(first)
            return picked, expired
        while len(picked) < waiting.max:
            message = self.next(box, picked + expired)
            if message is None:
                break
            (expired if self.is_expired(message) else picked).append(message)
            late = message in expired and box.lane(message) is not None
            if late and box.settings["halt_on_dead_letter"]:
                break
        return picked, expired

    def is_expired(self, message: Message) -> bool:
        expires = message.expires_at()
        return expires is not None and expires <= self.now

    def choose(self, box: Box, waiting: Waiting) -> list[Message]:
        while True:
            picked, expired = self.pick(box, waiting)
            self.expire(box, expired)
            done = [message for message in picked if message.completed]
            self.finish(box, done)
            picked = [message for message in picked if not message.completed]
            if picked or not (expired or done):
                return picked

    def receive(self, box: Box, waiting: Waiting, *, wait: bool) -> bool:
        chosen = self.choose(box, waiting)
        if chosen:
            self.grant(box, waiting, chosen)
            return True
        if wait:
            same = [w for w in box.waiting if w.correlation_id == waiting.correlation_id]
            if waiting.correlation_id is not None:
                for other in same:
                    box.waiting.remove(other)
            box.waiting.append(waiting)
        return False

    def grant(self, box: Box, waiting: Waiting, messages: list[Message]) -> None:
        sequences, tokens = self.facts.delivered.pop(waiting.name, ([], []))
        assert sequences == [m.sequence for m in messages], (
            f"{box.address} gave {sequences}, not {[(m.sequence, m.id) for m in messages]}"
        )
        self.clock_ties += 1
        for message, token in zip(messages, tokens, strict=True):
            assert message.due_at <= message.ready_at <= self.now, "never early"
            assert not self.is_expired(message)
            message.attempts += 1
            message.token, message.remote, message.holder = token, waiting.remote, waiting.holder
            message.lease_ms = waiting.lease_ms or box.settings["lease_ms"] or LEASES_MS[message.priority]
            message.deadline, message.deadline_set = self.now + message.lease_ms, self.clock_ties
        box.counters["delivered"] += len(messages)
        if box.settings["delivery_semantics"] == "at_most_once":
            self.finish(box, messages)

    def serve(self) -> None:
        """Whoever waits and can be given something has been given it.

        No rule says which mailbox comes first. It matters when one only finds what has expired, and the
        word of that goes to another: so if one order does not explain what was delivered, the other must.
        """
        before = pickle.dumps(self.__dict__)
        try:
            self.serve_the_served()
            self.serve_the_rest()
        except (AssertionError, KeyError):
            self.__dict__.update(pickle.loads(before))
            self.serve_the_rest()
            self.serve_the_served()

    def serve_the_served(self) -> None:
        for name in list(self.facts.delivered):
            found = [(box, w) for box in self.boxes.values() for w in box.waiting if w.name == name]
            assert found, "somebody was served who did not wait"
            box, waiting = found[0]
            if waiting.correlation_id is None:
                assert waiting is next(w for w in box.waiting if w.correlation_id is None), "first come"
            chosen = self.choose(box, waiting)
            box.waiting.remove(waiting)
            self.grant(box, waiting, chosen)

    def serve_the_rest(self) -> None:
        for box in list(self.boxes.values()):
            if not any(waiting.name in self.facts.delivered for waiting in box.waiting):
                for waiting in box.waiting:
                    assert self.choose(box, waiting) == [], f"{box.address} has something for one who waits"

    # -- settling

    def held(self, token: int) -> tuple[Box, Message]:
        for box in self.boxes.values():
            for message in box.messages:
                if message.token == token:
                    return box, message
        raise Refused("LEASE_LOST")

    def ack(self, tokens: list[int], *, drop: bool) -> list[int]:
        stale = []
        for token in dict.fromkeys(tokens):
            try:
                box, message = self.held(token)
            except Refused:
                stale.append(token)
                continue
            if drop:
                self.drop(box, message, "dropped")
            else:
                self.finish(box, [message])
        return stale

    def nack(self, token: int, code: str, *, retryable: bool, delay_ms: int | None, until: int | None) -> str:
        box, message = self.held(token)
        if until is None:
            return self.fail(box, message, code, retryable=retryable, delay_ms=delay_ms, nacked=True)
        if message.deferrals >= box.settings["max_deferrals"]:
            message.failed(code)
            self.bury(box, [message], "deferred_too_often", code)
            return "dead_letter"
        later = self.later(box, message)
        self.end(box, message, code, "deferred")
        message.failed(code)
        message.attempts -= 1
        message.deferrals += 1
        message.token, message.ready_at = None, max(until, self.now)
        message.waited += message.ready_at - self.now
        box.counters["deferred"] += 1
        self.give_back(later)
        return "deferred"

    def fail(
        self,
        box: Box,
        message: Message,
        code: str,
        *,
        retryable: bool = True,
        delay_ms: int | None = None,
        alone: bool = False,
        text: str = "",
        nacked: bool = False,
    ) -> str:
        rules = {**RULES, **(box.settings["contract"] or {})}
        retries, exit, _, after_ms, default = rules.get(code, rules["other"])
        limit = retries
        if retries:
            wishes = [message.max_retries, box.settings["max_retries"], retries]
            limit = next(wish for wish in wishes if wish is not None)
            if not default:
                limit = min(limit, retries)
        message.failed(code, text)
        if not retryable or message.attempts > limit:
            return self.give_up(box, message, code, exit, retryable=retryable and retries > 0)
        if delay_ms is None:
            delay_ms = after_ms
        if delay_ms is None:
            base, cap = box.settings["backoff_ms_base"], box.settings["backoff_ms_cap"]
            plain = min(base * 2 ** (message.attempts - 1), cap)
            delay_ms = int(plain * (1 + self.chance * box.settings["backoff_jitter"]))
        later = [] if alone else self.later(box, message)
        self.end(box, message, code, "retrying")
        message.token, message.ready_at = None, self.now + max(0, delay_ms)
        if nacked:
            message.waited += message.ready_at - self.now
        box.counters["retried"] += 1
        self.give_back(later)
        return "retrying"

    def give_up(self, box: Box, message: Message, code: str, exit: str, *, retryable: bool) -> str:
        if exit == "success":
            self.end(box, message, code, "success")
            self.finish(box, [message], quietly=True)
            return "success"
        if exit == "drop":
            self.drop(box, message, code)
            return "dropped"
        self.bury(box, [message], "retries_exhausted" if retryable else "not_retryable", code)
        return "dead_letter"

    def later(self, box: Box, message: Message) -> list[Message]:
        """The rest of the run that is out with the same holder."""
        lane = box.lane(message)
        run = [m for m in box.messages if m.token is not None and lane is not None and box.lane(m) == lane]
        return [mate for mate in run if lane_place(mate) > lane_place(message)]

    def give_back(self, messages: list[Message]) -> None:
        for message in messages:
            if message.token is not None:
                message.token = None
                message.attempts -= 1

    def release(self, tokens: list[int]) -> None:
        back: list[Message] = []
        for token in tokens:
            try:
                box, message = self.held(token)
            except Refused:
                continue
            back += [message, *self.later(box, message)]
        self.give_back(back)

    def extend(self, token: int, ms: int) -> int:
        _, message = self.held(token)
        if self.now + ms > message.deadline:
            self.clock_ties += 1
            message.deadline, message.deadline_set = self.now + ms, self.clock_ties
        return message.deadline

    def complete(self, address: str, sequence: int) -> bool:
        box = self.boxes.get(address)
        for message in box.messages if box else []:
            if message.sequence == sequence and not message.completed:
                message.completed = True
                return True
        return False

    # -- ends

    def remove(self, box: Box, message: Message) -> None:
        box.messages.remove(message)
        message.token = None
        seen = self.ids.get((box.address, message.id))
        if seen is not None and seen.sequence == message.sequence:
            seen.pending = False

    def finish(self, box: Box, messages: list[Message], *, quietly: bool = False) -> None:
        for message in messages:
            self.remove(box, message)
            box.counters["acked"] += 1
            if message.attempts > 1 and not quietly:
                self.end(box, message, "", "success")
            if message.requires_ack:
                self.notify(box, message, "ack")

    def drop(self, box: Box, message: Message, code: str) -> None:
        self.remove(box, message)
        box.counters["dropped"] += 1
        self.refuse(box, message, code, "dropped")

    def expire(self, box: Box, messages: list[Message]) -> None:
        for message in [each for each in messages if each.notice]:
            self.drop(box, message, "ttl_expired")
        self.bury(box, [each for each in messages if not each.notice], "ttl_expired")

    def bury(self, box: Box, messages: list[Message], reason: str, code: str | None = None) -> None:
        back = []
        for message in messages:
            if box.settings["halt_on_dead_letter"] and message.token is not None:
                back += self.later(box, message)
        for message in messages:
            dead_sequence = self.facts.deaths[box.address, message.sequence]
            payer = self.payer(box, message)
            self.letters.append(Letter(box.address, dead_sequence, replace(message), reason, payer))
            lane = box.ordering(message)
            if box.settings["halt_on_dead_letter"] and lane is not None:
                box.halted[dead_sequence] = lane
            self.remove(box, message)
            box.counters["dead"] += 1
            box.counters["expired"] += reason == "ttl_expired"
        self.give_back(back)
        for message in messages:
            self.refuse(box, message, code or reason, "dead_letter")
        if messages:
            self.forget_redriven(box)

    def refuse(self, box: Box, message: Message, code: str, final_state: str) -> None:
        self.end(box, message, code, final_state)
        if message.requires_ack or message.type == "question":
            self.notify(box, message, "nack")

    def end(self, box: Box, message: Message, code: str, final_state: str) -> None:
        self.ended.append((box.address, message.id, message.attempts, code, final_state))

    def notify(self, box: Box, message: Message, kind: str) -> None:
        sender = self.boxes.get(message.sender)
        if sender is None:
            return
        sequence, id, content = self.facts.notices[sender.address, kind, message.id, box.address].pop(0)
        asked = message.type == "question" and message.correlation_id is not None
        notice = Message(
            id=id,
            content=content,
            sender=box.address,
            type=kind,
            correlation_id=message.correlation_id if asked else message.id,
            sequence=sequence,
            accepted_at=self.now,
            due_at=self.now,
            ready_at=self.now,
            notice=True,
        )
        self.ids[sender.address, id] = Admitted(sequence, box.address, content, self.now, self.now, 1, True)
        sender.messages.append(notice)
        sender.messages.sort(key=lambda message: message.sequence)
        sender.counters["accepted"] += 1

    # -- dead letters

    def letter(self, mailbox: str, dead_sequence: int) -> Letter:
        for letter in self.letters:
            if (letter.mailbox, letter.dead_sequence) == (mailbox, dead_sequence):
                return letter
        raise Refused("NOT_FOUND")

    def redrive(
        self, names: list[tuple[str, int]], to: str | None, edit: Callable[[Message], Message] | None
    ) -> list[bool]:
        letters = [self.letter(*name) for name in names]
        new: list[tuple[Letter, str, Message]] = []
        for letter in [self.letter(*name) for name in dict.fromkeys(names)]:
            if letter.status == "pending":
                message = replace(letter.message) if edit is None else edit(replace(letter.message))
                new.append((letter, to or letter.mailbox, message))
        for address in dict.fromkeys(target for _, target, _ in new):
            sizes = [len(message.content) for _, target, message in new if target == address]
            if not self.box(address).room_for(sizes):
                raise Refused("MAILBOX_FULL")
        done = []
        sequence = self.sequence
        for letter in letters:
            found = next((row for row in new if row[0] is letter), None)
            done.append(found is not None)
            if found is not None:
                new.remove(found)
                self.put_back(*found, sequence)
                sequence += 1
        for letter in letters:
            if letter.mailbox in self.boxes:
                self.forget_redriven(self.boxes[letter.mailbox])
        return done

    def put_back(self, letter: Letter, address: str, message: Message, sequence: int) -> None:
        box = self.boxes[address]
        letter.status = "redriven"
        self.unhalt(letter)
        message.sequence = sequence
        message.accepted_at = message.due_at = message.ready_at = self.now
        message.redrives = letter.message.redrives + 1
        message.attempts = message.deferrals = message.waited = 0
        message.completed, message.failures, message.token, message.notice = False, [], None, False
        message.failure_bytes = 0
        message.priority, message.delay_ms = message.envelope_priority, 0
        box.messages.append(message)
        box.counters["accepted"] += 1
        box.counters["redriven"] += 1

    def purge(self, names: list[tuple[str, int]]) -> int:
        letters = [self.letter(*name) for name in dict.fromkeys(names)]
        for letter in letters:
            self.unhalt(letter)
            self.letters.remove(letter)
        return len(letters)

    def unhalt(self, letter: Letter) -> None:
        box = self.boxes.get(letter.mailbox)
        if box is not None:
            box.halted.pop(letter.dead_sequence, None)

    # -- pending messages change

    def reprioritise(self, address: str, ids: frozenset[str] | None, priority: int) -> int:
        changed = [
            message
            for message in self.box(address).messages
            if message.token is None and message.priority != priority and (ids is None or message.id in ids)
        ]
        for message in changed:
            message.priority = priority
        return len(changed)

    def force_delayed(self, address: str | None) -> int:
        forced = [
            message
            for box in self.boxes.values()
            for message in box.messages
            if message.due_at > self.now and address in (None, box.address)
        ]
        for message in forced:
            message.due_at = message.ready_at = self.now
        return len(forced)

    # -- the process

    def start(self) -> None:
        """Another process: nobody waits any more; local holders are gone, remote ones have one lease more."""
        for box in self.boxes.values():
            box.waiting, box.expected, box.starved = [], [], 0
            box.credits, box.above = [8, 3, 1], {1: 0, 2: 0}
        held = [m for box in self.boxes.values() for m in box.messages if m.token is not None]
        for message in sorted(held, key=lambda m: m.token or 0):
            if message.remote:
                self.clock_ties += 1
                message.deadline, message.deadline_set = self.now + message.lease_ms, self.clock_ties
        for box in list(self.boxes.values()):
            out = [message for message in box.messages if message.token is not None]
            behind = [mate for message in out for mate in self.later(box, message)]
            lost = [message for message in out if not message.remote]
            for message in lost:
                if message not in behind:
                    text = f"{message.holder} stopped while it held the lease"
                    self.fail(box, message, "timeout", delay_ms=0, alone=True, text=text)
            self.give_back([message for message in lost if message in behind])
        self.expire_leases()
        self.expire_messages()

    def stop(self, *, deliver_delayed: bool) -> int:
        held = [m for box in self.boxes.values() for m in box.messages if m.token is not None]
        self.give_back([message for message in held if not message.remote])
        return self.force_delayed(None) if deliver_delayed else 0


def first_of(found: list[tuple[int, Message]]) -> Message:
    return min(found, key=lambda row: (row[0], *queue_place(row[1])))[1]


def covers(pattern: str, topic: str) -> bool:
    wanted, words = pattern.split("."), topic.split(".")
    if wanted[-1].endswith("**"):
        before = wanted[:-1]
        return len(words) > len(before) and covers_words(before, words[: len(before)])
    return covers_words(wanted, words)


def covers_words(wanted: list[str], words: list[str]) -> bool:
    if len(wanted) != len(words):
        return False
    return all(a == b or a.rpartition("/")[2] == "*" for a, b in zip(wanted, words, strict=True))
