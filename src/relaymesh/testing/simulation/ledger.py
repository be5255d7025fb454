"""The ledger: what the journal says became of every message, worked out from its records alone.

It reads records as plain lists and knows the rules only from the promises; it shares no code with the
kernel. While it reads it checks what can be checked at that point: each record must be possible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from relaymesh.testing.simulation.entries import Box, Entry, Granted, Purge
from relaymesh.testing.simulation.plan import Plan
from relaymesh.testing.simulation.schedule_ledger import ScheduleLedger
from relaymesh.testing.simulation.task_ledger import TaskLedger
from relaymesh.testing.simulation.told import StepTold
from relaymesh.testing.simulation.verdict import Violation

WINDOW_MS = 86_400_000
BURNING = ("nack", "expired", "restart", "abandoned")
EPOCH_SHIFT = 40


class Ledger:
    """Fed with frames in order: `read(first_sequence, records)`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.entries: dict[tuple[str, int], Entry] = {}
        self.boxes: dict[str, Box] = {}
        self.letters: dict[tuple[str, int], Entry] = {}
        self.published: dict[int, tuple[str, str, bytes]] = {}
        self.admitted: dict[tuple[str, str], tuple[int, int]] = {}
        self.purges: list[Purge] = []
        self.tokens: dict[int, Granted] = {}
        self.expired: dict[int, int] = {}
        """When a lease ran out, by token, if it did so in the epoch that granted it."""
        self.subscribed: dict[str, str] = {}
        self.suspended: set[str] = set()
        self.skipped: dict[int, int] = {}
        """By sequence of a publish: how many subscriptions were suspended then."""
        self._newly_suspended: list[Box] = []
        self.sequence = 1
        self.epoch = 0
        self.epoch_at = 0
        self.now = 0
        self.last_token = 0
        self._new_epoch = False
        self.tasks = TaskLedger()
        self.schedules = ScheduleLedger()
        self._unclaimed: dict[int, Entry] = {}
        """What the mesh sent in this frame, and no record has said why."""
        self._read: dict[int, Callable[[int, list[Any]], None]] = {
            1: self._epoch_started,
            2: self._mailbox_opened,
            3: self._subscribed,
            5: self._accepted,
            6: self._published,
            7: self._granted,
            8: self._acked,
            9: self._dropped,
            10: self._returned,
            11: self._dead_lettered,
            12: self._redriven,
            13: self._purged,
            14: self._reprioritised,
            15: self._forced,
            16: self._completed,
            17: self._suspended,
            18: self._resumed,
            19: self.tasks.submitted,
            20: self._steps_sent,
            21: self._steps_ended,
            22: self.tasks.added,
            23: self.tasks.closing,
            24: self.tasks.ended,
            36: self.schedules.set,
            37: self.schedules.removed,
            38: self.schedules.fired,
            39: self.schedules.paused,
            28: self._step_waits,
            29: self.tasks.signalled,
            30: self._steps_withdrawn,
            31: self.tasks.undoing,
            32: self.tasks.used,
            33: self.tasks.paused,
            34: self.tasks.budget_set,
            35: self._notice_sent,
            128: self._registered,
        }

    def read(self, first_sequence: int, records: Iterable[list[Any]]) -> None:
        if first_sequence != self.sequence:
            raise Violation(
                "journal_whole", f"a frame begins with sequence {first_sequence}, not {self.sequence}"
            )
        self.schedules.before = None
        self._unclaimed = {}
        for record in records:
            operation, count, at = record[0], record[1], record[2]
            if at < self.now:
                raise Violation(
                    "time_goes_on", f"sequence {self.sequence} happened at {at}, before {self.now}"
                )
            self.now = at
            self.tasks.sequence = self.sequence
            self._read[operation](at, record)
            self.schedules.before = record
            self.sequence += count
        self._check_frame()

    def _check_frame(self) -> None:
        for box in self.boxes.values():
            settings = box.plan.settings
            if len(box.unsettled) > settings.capacity or box.bytes > settings.capacity_bytes:
                raise Violation(
                    "capacity", f"{box.plan.address} holds {len(box.unsettled)} messages, {box.bytes} bytes"
                )
        for entry in self._unclaimed.values():
            raise Violation("no_phantom", f"the mesh sent {entry}, and nothing says why")
        if self.tasks.tasks:
            self.tasks.check_frame(self._steps_leased())
            self._check_questions()
        if self._new_epoch:
            self._new_epoch = False
            self._check_void()

    def _check_questions(self) -> None:
        """A question is taken back when its step waits no more."""
        for box in self.boxes.values():
            for entry in box.unsettled.values():
                if entry.asks is not None and entry.asks.ended:
                    raise Violation("wait_kept", f"{entry} asks for {entry.asks}, which waits no more")

    def _steps_leased(self) -> set[StepTold]:
        unsettled = [entry for box in self.boxes.values() for entry in box.unsettled.values()]
        return {entry.step for entry in unsettled if entry.token and entry.step is not None}

    def _check_void(self) -> None:
        for box in self.boxes.values():
            for entry in box.unsettled.values():
                if entry.token and not entry.remote and entry.token >> EPOCH_SHIFT < self.epoch:
                    raise Violation("restart_voids", f"{entry} is still leased to {entry.holder}")

    def _registered(self, _at: int, record: list[Any]) -> None:
        """An agent joined, or drains: its mailbox is there."""
        if record[3] not in self.boxes:
            raise Violation("registered_has_mailbox", f"{record[3]} is registered and has no mailbox")
        if len(record) > 8 and record[8]:
            self.tasks.draining.add(record[3])
        else:
            self.tasks.draining.discard(record[3])

    def _steps_sent(self, at: int, record: list[Any]) -> None:
        id, mailbox, sequences, numbers = record[3:7]
        for sequence, number in zip(sequences, numbers, strict=True):
            entry = self._pending(mailbox, sequence, "a step")
            if entry.step is not None:
                raise Violation("step_sent_once", f"{entry} is the work of {entry.step} and of another step")
            self._unclaimed.pop(sequence, None)
            entry.step = self.tasks.sent(at, id, number, mailbox, entry.content)

    def _steps_ended(self, at: int, record: list[Any]) -> None:
        leased = {step.number for step in self._steps_leased() if step.task.id == record[3]}
        self.tasks.steps_ended(at, record, leased)

    def _step_waits(self, at: int, record: list[Any]) -> None:
        sequence = record[7] if len(record) > 7 else -1
        if sequence < 0:
            self.tasks.waits(at, record, None)
            return
        entry = self._pending(record[8], sequence, "a question")
        self._unclaimed.pop(sequence, None)
        entry.asks = self.tasks.waits(at, record, entry.content)

    def _steps_withdrawn(self, at: int, record: list[Any]) -> None:
        for number in record[4]:
            step = self.tasks.tasks[record[3]].steps[number]
            unsettled = [entry for box in self.boxes.values() for entry in box.unsettled.values()]
            found = [entry for entry in unsettled if entry.step is step and not entry.taken_back]
            if not found:
                raise Violation("budget_kept", f"{step} was taken back, and has no message")
            self.tasks.withdrawn(step, found[0].content, leased=bool(found[0].token))
            found[0].taken_back = True

    def _notice_sent(self, at: int, record: list[Any]) -> None:
        entry = self._unclaimed.pop(self.sequence - 1, None)
        there = entry is not None and entry.mailbox == record[5]
        self.tasks.notice_sent(record, entry.envelope if entry is not None and there else None)
        if entry is not None:
            entry.news = record[4]

    # -- places -------------------------------------------------------------------------------

    def _box(self, mailbox: str) -> Box:
        box = self.boxes.get(mailbox)
        if box is None:
            box = self.boxes[mailbox] = Box(self.plan.mailboxes[mailbox])
        return box

    def _pending(self, mailbox: str, sequence: int, doing: str) -> Entry:
        entry = self.entries.get((mailbox, sequence))
        if entry is None or entry.state != "pending":
            state = "was never accepted" if entry is None else f"is {entry.state}"
            raise Violation("conservation", f"{doing} names sequence {sequence} of {mailbox}, which {state}")
        return entry

    def _leased(self, mailbox: str, sequence: int, doing: str) -> Entry:
        entry = self._pending(mailbox, sequence, doing)
        if not entry.token:
            raise Violation("stale_settle_refused", f"{doing} of {entry}, which no client holds")
        return entry

    def _enter(self, mailbox: str, sequence: int, envelope: list[Any], at: int, due: int) -> Entry:
        box = self._box(mailbox)
        lane = self._lane(box, envelope)
        fields = (*envelope, *(None,) * (16 - len(envelope)))
        entry = Entry(
            mailbox,
            sequence,
            fields[0],
            fields[2],
            lane,
            3 if fields[5] is None else fields[5],
            due,
            due,
            3_600_000 if fields[6] is None else fields[6],
            fields[15],
            envelope,
        )
        if (mailbox, sequence) in self.entries:
            raise Violation("conservation", f"{entry} was accepted twice")
        self.entries[mailbox, sequence] = box.unsettled[sequence] = entry
        if lane is not None:
            box.lanes.setdefault(lane, {})[sequence] = entry
        box.bytes += entry.size
        box.accepted += 1
        return entry

    def _lane(self, box: Box, envelope: list[Any]) -> str | None:
        if box.plan.settings.ordered:
            return ""
        key = envelope[9] if len(envelope) > 9 else None
        return None if key is None else "k" + key

    def _leave(self, entry: Entry, state: str) -> None:
        box = self.boxes[entry.mailbox]
        entry.state, entry.left_at = state, self.now
        if entry.token:
            entry.token = 0
            entry.ended += 1
        del box.unsettled[entry.sequence]
        box.bytes -= entry.size
        box.failure_bytes -= sum(entry.failures)
        if entry.lane is not None:
            del box.lanes[entry.lane][entry.sequence]

    # -- records ------------------------------------------------------------------------------

    def _epoch_started(self, at: int, record: list[Any]) -> None:
        epoch = record[3]
        if epoch <= self.epoch:
            raise Violation("tokens_unique", f"epoch {epoch} follows epoch {self.epoch}")
        self.epoch, self.epoch_at = epoch, at
        self.tasks.epoch = epoch
        self.schedules.epoch_at = at
        self.last_token = epoch << EPOCH_SHIFT
        self._new_epoch = True

    def _mailbox_opened(self, at: int, record: list[Any]) -> None:
        self._box(record[3])

    def _subscribed(self, at: int, record: list[Any]) -> None:
        self.subscribed[record[4]] = record[3]
        self.suspended.discard(record[4])
        self._box(record[4])

    def _admit(self, target: str, id: str, at: int, sequence: int) -> None:
        known = self.admitted.get((target, id))
        if known is not None and at < known[0] + WINDOW_MS:
            raise Violation(
                "dedup", f"{id} to {target} was accepted as {known[1]} and {at - known[0]} ms later again"
            )
        self.admitted[target, id] = at, sequence

    def _accepted(self, at: int, record: list[Any]) -> None:
        mailbox = record[3]
        for sequence, envelope in enumerate(record[4], self.sequence):
            delay = envelope[7] if len(envelope) > 7 else 0
            entry = self._enter(mailbox, sequence, envelope, at, at + max(0, delay))
            self._admit(mailbox, entry.id, at, sequence)
            if entry.by_mesh and envelope[4] not in ("ack", "nack"):
                self._unclaimed[sequence] = entry
        if record[4][0][4:5] not in (["ack"], ["nack"]):  # a notice needs no room
            self._check_room(self._box(mailbox))

    def _check_room(self, box: Box) -> None:
        """Nothing is let in where it finds no room, or too many dead letters."""
        settings = box.plan.settings
        count, size = self._waiting_letters(box)
        if count >= settings.dead_letters_max or size >= settings.dead_letter_bytes_max:
            raise Violation(
                "dead_letters_bounded", f"{box.plan.address} takes more, with {count} dead letters"
            )
        if box.bytes + box.failure_bytes > settings.capacity_bytes:
            raise Violation(
                "capacity", f"{box.plan.address} let in more than {settings.capacity_bytes} bytes"
            )

    def _waiting_letters(self, box: Box) -> tuple[int, int]:
        """Dead letters that were not redriven: how many, and their bytes."""
        mine = [
            letter
            for (mailbox, _), letter in self.letters.items()
            if mailbox == box.plan.address and letter.state == "dead"
        ]
        return len(mine), sum(letter.size + sum(letter.failures) for letter in mine)

    def _suspended(self, at: int, record: list[Any]) -> None:
        mailbox = record[3]
        box = self.boxes.get(mailbox)
        if box is None or mailbox not in self.subscribed or mailbox in self.suspended:
            raise Violation("suspended_for_a_reason", f"{mailbox} is suspended, and nothing open")
        if box.plan.settings.overflow != "dead_letter":
            raise Violation("suspended_for_a_reason", f"{mailbox} is suspended, though it rejects")
        self.suspended.add(mailbox)
        self._newly_suspended.append(box)

    def _check_suspended(self, envelopes: list[list[Any]]) -> None:
        """What a publish suspended could not have kept the messages even as dead letters."""
        for box in self._newly_suspended:
            count, size = self._waiting_letters(box)
            settings = box.plan.settings
            size += sum(len(envelope[2]) for envelope in envelopes)
            fits = count + len(envelopes) <= settings.dead_letters_max
            if fits and size <= settings.dead_letter_bytes_max:
                raise Violation("suspended_for_a_reason", f"{box.plan.address} had room for dead letters")
        self._newly_suspended = []

    def _resumed(self, at: int, record: list[Any]) -> None:
        mailbox = record[3]
        if mailbox not in self.suspended:
            raise Violation("suspended_for_a_reason", f"{mailbox} is resumed, and was not suspended")
        count, _ = self._waiting_letters(self.boxes[mailbox])
        if 2 * count > self.boxes[mailbox].plan.settings.dead_letters_max:
            raise Violation("suspended_for_a_reason", f"{mailbox} is resumed with {count} dead letters")
        self.suspended.remove(mailbox)

    def _published(self, at: int, record: list[Any]) -> None:
        topic, targets = record[3], record[4]
        route = [
            box for box in self.plan.routed(topic) if box in self.subscribed and box not in self.suspended
        ]
        if targets != len(route):
            raise Violation("fan_out", f"a publish to {topic} went to {targets} mailboxes, not {len(route)}")
        self._check_suspended(record[5])
        skipped = len([box for box in self.plan.routed(topic) if box in self.suspended])
        for sequence, envelope in enumerate(record[5], self.sequence):
            self.published[sequence] = topic, envelope[0], envelope[2]
            if skipped:
                self.skipped[sequence] = skipped
            self._admit("topic:" + topic, envelope[0], at, sequence)
            for mailbox in route:
                self._enter(mailbox, sequence, envelope, at, at + max(0, envelope[7]))

    def _granted(self, at: int, record: list[Any]) -> None:
        mailbox, holder, token, sequences, remote, lease_ms = record[3:9]
        box = self._box(mailbox)
        if token <= self.last_token or token >> EPOCH_SHIFT != self.epoch:
            raise Violation("tokens_unique", f"token {token} in epoch {self.epoch} after {self.last_token}")
        for i, sequence in enumerate(sequences):
            entry = self._pending(mailbox, sequence, "a grant")
            self._check_grant(box, entry, at, token)
            entry.token, entry.holder, entry.remote = token + i, holder, remote
            entry.leased_at = at
            entry.lease_ms = lease_ms or box.plan.lease_ms(entry.priority)
            if entry.step is not None:
                entry.lease_ms = self.tasks.granted(entry.step, at, token + i, lease_ms)
            entry.attempts += 1
            entry.granted = True
            box.delivered += 1
            self.tokens[token + i] = Granted(entry, entry.attempts, at, holder)
        self.last_token = token + len(sequences) - 1

    def _check_grant(self, box: Box, entry: Entry, at: int, first_token: int) -> None:
        if entry.token:
            raise Violation("one_holder", f"{entry} was granted while {entry.holder} held it")
        if entry.ready > at:
            raise Violation("never_early", f"{entry} was granted at {at}, {entry.ready - at} ms early")
        if entry.completed:
            raise Violation("settled_stays", f"{entry} was granted although its work is done")
        if entry.expires and entry.expires <= at:
            raise Violation("expiry", f"{entry} was granted at {at} though it expired at {entry.expires}")
        if entry.lane is not None:
            self._check_lane(box, entry, at, first_token)
        else:
            self._check_line(box, entry, at)

    def _check_lane(self, box: Box, entry: Entry, at: int, first_token: int) -> None:
        assert entry.lane is not None
        if any(dead.lane == entry.lane and dead.place < entry.place for dead in box.halts.values()):
            raise Violation("lane_order", f"{entry} was granted though a dead letter halts its lane")
        for other in box.lanes[entry.lane].values():
            if other is entry:
                continue
            if other.token and other.token < first_token:
                raise Violation("lane_order", f"{entry} was granted while {other} of its lane was out")
            if other.place < entry.place and other.due <= at and not other.token:
                raise Violation("lane_order", f"{entry} was granted before {other} of its lane")

    def _check_line(self, box: Box, entry: Entry, at: int) -> None:
        """Among those without a lane and of one priority: by the time they became ready, then as sent."""
        for other in box.unsettled.values():
            if (
                (other.ready, other.sequence) < (entry.ready, entry.sequence)
                and other.lane is None
                and not other.token
                and other.priority == entry.priority
                and not (other.expires and other.expires <= at)
                and not other.completed
            ):
                raise Violation("send_order", f"{entry} was granted before {other}, which was due before it")

    def _acked(self, at: int, record: list[Any]) -> None:
        box = self._box(record[3])
        for sequence in record[4]:
            entry = self._pending(record[3], sequence, "an ack")
            late = entry.step is not None and (entry.step.ended or entry.step.is_group)
            entry.taken_back = entry.asks is not None and entry.asks.ended  # it was answered
            if not entry.token and not entry.completed and not late and not entry.taken_back:
                raise Violation("stale_settle_refused", f"an ack of {entry}, which no client holds")
            entry.unseen = not entry.token
            self._leave(entry, "acked")
            if entry.step is not None:
                self.tasks.acked(entry.step, at)
            box.acked += 1

    def _dropped(self, at: int, record: list[Any]) -> None:
        for sequence in record[4]:
            entry = self._pending(record[3], sequence, "a drop")
            if entry.asks is not None and entry.asks.ended:
                entry.taken_back = True
            if not entry.taken_back and (entry.step is None or not entry.step.ended):
                self._leased(record[3], sequence, "a drop")
            entry.ended -= bool(entry.token)  # it is no attempt in the store
            self._leave(entry, "dropped")
            if entry.step is not None and not entry.taken_back:
                self.tasks.dropped(entry.step, at)
            if entry.asks is not None:
                self.tasks.question_gone(entry.asks, at, (record[5] if len(record) > 5 else "") or "dropped")
            self._box(record[3]).dropped += 1

    def _returned(self, at: int, record: list[Any]) -> None:
        mailbox, cause, sequences, due, failures = record[3:8]
        box = self._box(mailbox)
        for i, sequence in enumerate(sequences):
            entry = self._leased(mailbox, sequence, f"a return ({cause})")
            code = failures[i][2] if failures and failures[i] else "other"
            if entry.step is not None:
                self.tasks.returned(entry.step, cause, box.plan.limit(code, entry.max_retries))
                if cause == "expired":
                    self._check_expired_lease(entry, at)
            else:
                self._check_return(box, entry, at, cause, code, due[i])
            entry.token = 0
            if failures and failures[i]:
                box.failure_bytes -= sum(entry.failures)
                entry.failed(failures[i])
                box.failure_bytes += sum(entry.failures)
            entry.ready = max(due[i], entry.due)
            if cause in ("nack", "deferred"):
                entry.waited += max(0, due[i] - at)
            if cause in BURNING:
                entry.ended += 1
                box.retried += 1
            else:
                entry.attempts -= 1
            if cause == "deferred":
                entry.deferrals += 1
                box.deferred += 1

    def _check_return(self, box: Box, entry: Entry, at: int, cause: str, code: str, due: int) -> None:
        if cause == "expired":
            self._check_expired_lease(entry, at)
        if cause == "restart" and entry.remote:
            raise Violation("remote_lease_kept", f"a restart took {entry} from {entry.holder}, who is remote")
        if cause in BURNING and entry.attempts > box.plan.limit(code, entry.max_retries):
            raise Violation(
                "attempts_bounded", f"{entry} is tried again after attempt {entry.attempts} ({code})"
            )
        if cause == "deferred" and entry.deferrals >= box.plan.settings.max_deferrals:
            raise Violation("attempts_bounded", f"{entry} is put off again after {entry.deferrals} times")
        if cause == "expired":
            settings = box.plan.settings
            plain = min(settings.backoff_ms_base << (entry.attempts - 1), settings.backoff_ms_cap)
            if due < at + plain:
                raise Violation("backoff", f"{entry} is tried again after {due - at} ms, not {plain}")

    def _check_expired_lease(self, entry: Entry, at: int) -> None:
        began = entry.leased_at
        if entry.remote and entry.token >> EPOCH_SHIFT < self.epoch:
            began = self.epoch_at
        else:
            self.expired[entry.token] = at
        if at < began + entry.lease_ms:
            raise Violation(
                "lease_kept",
                f"{entry} was taken from {entry.holder} after {at - began} of {entry.lease_ms} ms",
            )

    def _dead_lettered(self, at: int, record: list[Any]) -> None:
        mailbox, sequences, reason, failures = record[3:7]
        box = self._box(mailbox)
        for i, sequence in enumerate(sequences):
            entry = self._pending(mailbox, sequence, "a dead letter")
            code = failures[i][2] if failures and failures[i] else ""
            if entry.step is None or reason != "retries_exhausted":
                self._check_death(box, entry, at, reason, code)
            if entry.step is not None:
                self.tasks.died(entry.step, at, reason, code, box.plan.limit(code, entry.max_retries))
            if box.plan.settings.halt_on_dead_letter and entry.lane is not None:
                box.halts[self.sequence + i] = entry
            self._leave(entry, "dead")
            if entry.asks is not None:
                self.tasks.question_gone(entry.asks, at, reason)
            if failures and failures[i]:
                entry.failed(failures[i])
            entry.reason, entry.dead_at = reason, at
            self.letters[mailbox, self.sequence + i] = entry
            box.dead += 1
            box.expired += reason == "ttl_expired"

    def _check_death(self, box: Box, entry: Entry, at: int, reason: str, code: str) -> None:
        limit = box.plan.limit(code, entry.max_retries)
        wrong = {
            "ttl_expired": entry.token or not entry.expires or entry.expires > at,
            "retries_exhausted": not entry.token or entry.attempts <= limit,
            "not_retryable": not entry.token,
            "deferred_too_often": not entry.token or entry.deferrals < box.plan.settings.max_deferrals,
            "mailbox_full": box.plan.settings.overflow != "dead_letter",
        }
        if wrong.get(reason, True):
            raise Violation("dead_for_a_reason", f"{entry} died of {reason!r} ({code}) without that reason")

    def _redriven(self, at: int, record: list[Any]) -> None:
        source, dead_sequence, mailbox, envelope = record[3:7]
        letter = self.letters.get((source, dead_sequence))
        if letter is None or letter.state != "dead":
            raise Violation("redrive_once", f"dead letter {dead_sequence} of {source} was redriven again")
        letter.state, letter.left_at = "redriven", at
        if envelope != letter.envelope:
            raise Violation("redrive_once", f"dead letter {letter} came back as another message, or changed")
        self.boxes[source].halts.pop(dead_sequence, None)
        entry = self._enter(mailbox, self.sequence, envelope, at, at)
        entry.redrives = letter.redrives + 1
        if letter.step is not None:
            entry.step = letter.step
            self.tasks.redriven(letter.step, at, self.sequence)
        self.boxes[mailbox].redriven += 1

    def _purged(self, at: int, record: list[Any]) -> None:
        for dead_sequence in record[4]:
            letter = self.letters.get((record[3], dead_sequence))
            if letter is None:
                raise Violation("conservation", f"a purge names no dead letter: {dead_sequence}")
            waits = letter.step is not None and letter.step.status == "DEAD"
            if letter.state == "dead":  # a redriven one may make room for another
                self.purges.append(Purge(record[3], dead_sequence, letter, at, waits))
                letter.state, letter.left_at = "purged", at
                if letter.step is not None:
                    self.tasks.purged(letter.step, at)
            del self.letters[record[3], dead_sequence]
            self.boxes[record[3]].halts.pop(dead_sequence, None)

    def _reprioritised(self, at: int, record: list[Any]) -> None:
        for sequence in record[4]:
            entry = self._pending(record[3], sequence, "a change of priority")
            entry.priority, entry.moved = record[5], True

    def _forced(self, at: int, record: list[Any]) -> None:
        for sequence in record[4]:
            entry = self._pending(record[3], sequence, "a forced delivery")
            entry.due = entry.ready = at

    def _completed(self, at: int, record: list[Any]) -> None:
        for sequence in record[4]:
            self._pending(record[3], sequence, "a completion").completed = True
