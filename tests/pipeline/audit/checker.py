"""The audit's rules once more, as one loop over the events of a partition: dumb, slow, and on its own.

Nothing here is shared with the pipeline or the kernel. An answer is a set of (rule, partition, mailbox,
message sequence, sequence), as the audit's rows name a violation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

Row = dict[str, Any]
Found = set[tuple[str, int, str | None, int | None, int | None]]

RETRIES = {"timeout": 3, "invalid": 0, "rate_limited": 5, "conflict": 0, "duplicate": 0, "fatal": 0}
ANY_RETRIES = 3
RETURNS = {"NACK": True, "LEASE_EXPIRED": True, "RECLAIM": True, "DEFER": False, "RELEASE": False}
SETTLES = {"ACK", "DROP", "DEAD_LETTER"}
CHANGES = {"REPRIORITISE", "FORCE_DELIVER", "COMPLETE"}


@dataclass
class Message:
    accepted: Row
    due: Any
    ready: Any
    settled: list[int] = field(default_factory=list)
    leased: bool = False
    completed: bool = False
    grants: int = 0
    returns: int = 0
    unburned: int = 0
    forced: int | None = None
    waited: timedelta = timedelta()
    copies: int = 0
    granted: list[Row] = field(default_factory=list)

    @property
    def counted(self) -> int:
        return self.grants - self.unburned


class Checker:
    """One partition, read from its first event."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row["sequence"])
        self.found: Found = set()
        self.open: dict[str, str] = {}
        self.settings: dict[str, Row] = {}
        self.ordered: dict[str, set[bool]] = {}
        self.closed: dict[str, list[int]] = {}
        self.messages: dict[tuple[str, int], Message] = {}
        self.letters: dict[tuple[str, int], list[str]] = {}

    def check(self) -> Found:
        before: Row | None = None
        token = None
        for row in self.rows:
            if before is not None:
                self._neighbours(before, row)
            if row["operation"] == "GRANT":
                if token is not None and row["lease_token"] <= token:
                    self._say("token_order", row)
                if row["lease_token"] >> 40 > row["epoch"]:
                    self._say("token_epoch", row)
                token = row["lease_token"]
            self._event(row)
            before = row
        self._lanes()
        self._lost()
        self._balance()
        return self.found

    def _say(self, rule: str, row: Row, *, mailbox: str | None = None, message: int | None = None) -> None:
        place = mailbox if mailbox is not None else row["mailbox"]
        number = message if message is not None else row["message_sequence"]
        self.found.add((rule, row["partition"], place, number, row["sequence"]))

    def _neighbours(self, before: Row, row: Row) -> None:
        if row["sequence"] == before["sequence"]:
            self._say("sequence_duplicate", row)
        if row["sequence"] > before["sequence"] + 1:
            self._say("sequence_gap", row)
        if row["timestamp"] < before["timestamp"]:
            self._say("time_order", row)

    def _event(self, row: Row) -> None:
        kind, mailbox = row["operation"], row["mailbox"]
        if kind in ("OPEN_MAILBOX", "SUBSCRIBE", "UNSUBSCRIBE", "SUSPEND", "RESUME"):
            self._mailbox(row)
        elif kind == "APPEND":
            self._accept(mailbox, row, row["delay_ms"])
        elif kind == "PUBLISH":
            goes = [box for box, pattern in self.open.items() if covers(pattern, row["topic"])]
            if len(goes) != row["targets"]:
                self._say("route", row)
            for box in goes:
                self._accept(box, row, row["delay_ms"])
        elif kind in ("REDRIVE", "PURGE"):
            self._letter(row)
            if kind == "REDRIVE":
                self._accept(mailbox, row, 0)
        elif kind == "GRANT" or kind in RETURNS or kind in SETTLES or kind in CHANGES:
            message = self.messages.get((mailbox, row["message_sequence"]))
            if message is None:
                self._say("unknown_message", row)
            else:
                self._judge(message, row)
                self._apply(message, row)
        if kind == "DEAD_LETTER":
            self.letters[mailbox, row["sequence"]] = []

    def _mailbox(self, row: Row) -> None:
        mailbox = row["mailbox"]
        if row["operation"] == "SUSPEND":
            self.open.pop(mailbox, None)
            return
        if row["operation"] == "RESUME":
            self.open[mailbox] = mailbox.rpartition(":")[0]
            return
        if row["operation"] == "UNSUBSCRIBE":
            self.open.pop(mailbox, None)
            self.settings.pop(mailbox, None)
            self.closed.setdefault(mailbox, []).append(row["sequence"])
            return
        self.settings[mailbox] = json.loads(row["settings"])
        self.ordered.setdefault(mailbox, set()).add(bool(self.settings[mailbox].get("ordered")))
        if row["operation"] == "SUBSCRIBE":
            self.open[mailbox] = row["pattern"]

    def _accept(self, mailbox: str, row: Row, delay: int) -> None:
        due = row["timestamp"] + timedelta(milliseconds=max(0, delay))
        message = self.messages.setdefault((mailbox, row["message_sequence"]), Message(row, due, due))
        message.copies += 1

    def _letter(self, row: Row) -> None:
        mailbox = row["source_mailbox"] if row["operation"] == "REDRIVE" else row["mailbox"]
        past = self.letters.get((mailbox, row["dead_sequence"]))
        bad = past is None or "PURGE" in past or (row["operation"] == "REDRIVE" and "REDRIVE" in past)
        if bad:
            number = row["message_sequence"]
            self.found.add(("redrive", row["partition"], mailbox, number, row["sequence"]))
        if past is not None:
            past.append(row["operation"])

    def _judge(self, message: Message, row: Row) -> None:
        kind = row["operation"]
        if message.settled:
            self._say("double_settle" if kind in SETTLES else "after_settle", row)
            return
        if kind == "GRANT":
            if message.leased:
                self._say("granted_twice", row)
            if row["timestamp"] < message.ready:
                self._say("early", row)
        elif kind in RETURNS:
            if not message.leased:
                self._say("return_without_lease", row)
        elif kind == "ACK" and not message.leased and not message.completed:
            self._say("no_attempt", row)
        elif kind in ("DROP", "DEAD_LETTER"):
            self._judge_exit(message, row)
        if message.leased:
            self._judge_attempt(message, row)

    def _judge_exit(self, message: Message, row: Row) -> None:
        free = (
            ("ttl_expired", "mailbox_full")
            if row["operation"] == "DEAD_LETTER"
            else ("unsubscribed", "ttl_expired")
        )
        why = row["reason"] if row["operation"] == "DEAD_LETTER" else row["code"]
        if not message.leased and why not in free:
            self._say("exit_without_attempt", row)
        if row["operation"] == "DEAD_LETTER":
            if not why:
                self._say("no_exit", row)
            ttl = message.accepted["ttl_ms"]
            over = message.due + timedelta(milliseconds=ttl)
            if why == "ttl_expired" and (ttl == 0 or row["timestamp"] < over):
                self._say("expired_early", row)

    def _judge_attempt(self, message: Message, row: Row) -> None:
        kind = row["operation"]
        fails = RETURNS.get(kind, False)
        if (fails or kind in ("DEFER", "DEAD_LETTER")) and row["attempt"] not in (None, message.counted):
            self._say("attempt_count", row)
        limits = self._limits(message, row)
        if limits is None:
            return
        least, most = limits
        if fails and message.counted > most:
            self._say("attempts_unbounded", row)
        if kind == "DEAD_LETTER" and row["reason"] == "retries_exhausted" and message.counted <= least:
            self._say("gave_up_early", row)

    def _limits(self, message: Message, row: Row) -> tuple[int, int] | None:
        """A contract's own number bounds `max_retries`; in older journals it did not."""
        settings = self.settings.get(row["mailbox"])
        if settings is None:
            return None
        own = settings.get("contract") or {}
        code = row["code"]
        bounds = False
        if code in own:
            rule, bounds = own[code]["retries"], not own[code].get("default")
        elif code in RETRIES:
            rule = RETRIES[code]
        elif "other" in own:
            rule, bounds = own["other"]["retries"], not own["other"].get("default")
        else:
            rule = ANY_RETRIES
        wish = message.accepted["max_retries"]
        mailbox = settings.get("max_retries")
        if rule == 0:
            return 0, 0
        most = int(wish if wish is not None else mailbox if mailbox is not None else rule)
        return min(most, rule) if bounds else most, most

    def _apply(self, message: Message, row: Row) -> None:
        kind = row["operation"]
        if kind == "GRANT":
            message.leased = True
            message.grants += 1
            message.granted.append(row)
        elif kind in RETURNS:
            message.leased = False
            message.returns += 1
            message.unburned += not RETURNS[kind]
            message.ready = row["due_at"]
            if kind in ("NACK", "DEFER"):
                message.waited += max(row["due_at"] - row["timestamp"], timedelta())
        elif kind in SETTLES:
            message.leased = False
            message.settled.append(row["sequence"])
        elif kind == "COMPLETE":
            message.completed = True
        elif kind == "FORCE_DELIVER":
            message.ready = message.due = row["timestamp"]
            message.forced = row["sequence"]

    # -- after the last event

    def _lane(self, mailbox: str, message: Message) -> str | None:
        row = message.accepted
        if row["correlation_id"] is not None or len(self.ordered.get(mailbox, ())) > 1:
            return None
        if True in self.ordered.get(mailbox, ()):
            return ""
        if row["ordering_key"] is not None:
            return f"key {row['ordering_key']}"
        return None if row["task_id"] is None else f"task {row['task_id']}"

    def _lanes(self) -> None:
        lanes: dict[tuple[str, str], list[tuple[Any, int, Message]]] = {}
        for (mailbox, number), message in self.messages.items():
            lane = self._lane(mailbox, message)
            if lane is not None:
                lanes.setdefault((mailbox, lane), []).append((message.due, number, message))
        for (mailbox, _), line in lanes.items():
            line.sort(key=lambda each: each[:2])
            for i, (_, number, message) in enumerate(line):
                for grant in message.granted:
                    if self._overtakes(line[:i], grant):
                        self._say("lane_order", grant, mailbox=mailbox, message=number)

    def _overtakes(self, ahead: list[tuple[Any, int, Message]], grant: Row) -> bool:
        if ahead and _went_with(ahead[-1][2], grant):
            return False
        at = grant["sequence"]
        return any(
            number < at
            and due <= grant["timestamp"]
            and (message.forced is None or message.forced < at)
            and (not message.settled or message.settled[0] > at)
            and not _went_with(message, grant)
            for due, number, message in ahead
        )

    def _lost(self) -> None:
        end = max(row["timestamp"] for row in self.rows)
        last = max(row["sequence"] for row in self.rows)
        partition = self.rows[0]["partition"]
        for (mailbox, number), message in self.messages.items():
            if message.settled:
                continue
            gone = [at for at in self.closed.get(mailbox, ()) if at > number]
            if gone:
                self.found.add(("lost", partition, mailbox, number, min(gone)))
            ttl = message.accepted["ttl_ms"]
            over = message.due + timedelta(milliseconds=ttl + 60_000) + message.waited
            if ttl and message.grants <= message.returns and over < end:
                self.found.add(("lost", partition, mailbox, number, last))

    def _balance(self) -> None:
        accepted: dict[str, int] = {}
        for (mailbox, _), message in self.messages.items():
            accepted[mailbox] = accepted.get(mailbox, 0) + (message.copies if message.settled else 0)
        settles: dict[str, int] = {}
        for row in self.rows:
            if row["operation"] in SETTLES:
                settles[row["mailbox"]] = settles.get(row["mailbox"], 0) + 1
        for mailbox in accepted.keys() | settles.keys():
            if accepted.get(mailbox, 0) != settles.get(mailbox, 0):
                self.found.add(("conservation", self.rows[0]["partition"], mailbox, None, None))


def _went_with(message: Message, grant: Row) -> bool:
    """The message was granted before, in the same breath and to the same holder."""
    return any(
        other["sequence"] < grant["sequence"]
        and other["holder"] == grant["holder"]
        and other["timestamp"] == grant["timestamp"]
        and grant["lease_token"] - other["lease_token"] == grant["sequence"] - other["sequence"]
        for other in message.granted
    )


def covers(pattern: str, topic: str) -> bool:
    """Whether the pattern covers the topic, word by word."""
    space, _, wanted = pattern.partition("/")
    other, _, words = topic.partition("/")
    return space == other and _covers(wanted.split("."), words.split("."))


def _covers(wanted: list[str], words: list[str]) -> bool:
    if wanted == ["**"]:
        return bool(words)
    if not wanted or not words:
        return not wanted and not words
    return wanted[0] in ("*", words[0]) and _covers(wanted[1:], words[1:])
