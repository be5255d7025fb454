"""How a story shows what one step led to: records, effects and counts, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from relaymesh.kernel import commands, records
from relaymesh.kernel.envelope import TTL_MS_DEFAULT, Envelope
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.request import Command
from relaymesh.kernel.step import Arrived, BreakerMoved, Delivered, Ended, Receipt, Step

UNITS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


class Handed(NamedTuple):
    """A delivery as it leaves the kernel."""

    token: int
    id: str
    attempt: int
    deadline: int


def deliveries_of(delivered: Delivered) -> list[Handed]:
    """The one place here that knows in which form the kernel hands deliveries out."""
    rows = delivered.deliveries.rows()
    return [Handed(row.token, row.envelope.id, row.attempt, row.deadline) for row in rows]


def counts(kernel: Kernel) -> dict[str, str]:
    """What each mailbox holds, in words."""
    told = {}
    for address, box in kernel.state.mailboxes.items():
        held = {
            "waiting": len(box.entries) - box.leased - box.delayed,
            "leased": box.leased,
            "delayed": box.delayed,
            "dead": kernel.state.letters.of(address).pending,
        }
        told[address] = ", ".join(f"{count} {name}" for name, count in held.items() if count) or "empty"
    return told


def span(ms: int) -> str:
    """90500 as `1m 30s 500ms`."""
    parts = []
    for unit, size in UNITS.items():
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"


def short(address: str) -> str:
    return address.removeprefix("default/")


class Telling:
    """Lines of a step. It remembers which message has which sequence, so that lines can name messages."""

    def __init__(self) -> None:
        self.marks = False
        self.tokens: dict[str, int] = {}
        """Of each delivery, by `id@attempt`; the newest of a message also by its id alone."""
        self._ids: dict[int, str] = {}

    def lines(self, command: Command[Any], step: Step, now: int) -> Iterator[str]:
        for delivered in step.delivered or ():
            for each in deliveries_of(delivered):
                self.tokens[each.id] = self.tokens[f"{each.id}@{each.attempt}"] = each.token
        sequence = step.base
        for record in step.records:
            last = sequence + record.count - 1
            place = f"#{sequence}" if record.count == 1 else f"#{sequence}-{last}"
            yield f"  {place:<8}{type(record).__name__:<18}{self._record(record, sequence, now)}".rstrip()
            sequence += record.count
        for effect in self._effects(command, step, now):
            yield f"  -> {effect}"

    # -- records

    def _record(self, record: Any, first: int, now: int) -> str:
        match record:
            case records.Accepted():
                self._learn(first, record.envelopes)
                return f"{short(record.mailbox)}: {messages_words(record.envelopes)}"
            case records.Published():
                self._learn(first, record.envelopes)
                return f"{short(record.topic)} to {record.targets}: {messages_words(record.envelopes)}"
            case records.Granted():
                return f"{short(record.mailbox)}: {self._named(record.sequences)} to {record.holder}"
            case records.Returned():
                parts = [
                    f"{self._named([sequence])} {'now' if due <= now else 'in ' + span(due - now)}"
                    for sequence, due in zip(record.sequences, record.due, strict=True)
                ]
                return f"{short(record.mailbox)}: {record.cause}, again {', '.join(parts)}"
            case records.DeadLettered():
                return f"{short(record.mailbox)}: {self._named(record.sequences)}, {record.reason}"
            case records.Redriven():
                self._learn(first, [record.envelope])
                came = f" from {short(record.source)}" if record.source != record.mailbox else ""
                return f"{short(record.mailbox)}: {messages_words([record.envelope])}{came}"
            case records.Reprioritised():
                return f"{short(record.mailbox)}: {self._named(record.sequences)} to {record.priority}"
            case _ if hasattr(record, "sequences"):
                return f"{short(record.mailbox)}: {self._named(record.sequences)}"
            case _:
                return mailbox_words(record)

    def _learn(self, first: int, envelopes: Sequence[Envelope]) -> None:
        self._ids.update((first + i, envelope.id) for i, envelope in enumerate(envelopes))

    def _named(self, sequences: Sequence[int]) -> str:
        return " ".join(self._ids[sequence] for sequence in sequences)

    # -- effects

    def _effects(self, command: Command[Any], step: Step, now: int) -> Iterator[str]:
        if step.error is not None:
            yield f"refused: {step.error.code}, {step.error.message}{self._after(step.written, step.synced)}"
        else:
            for words in self._result(command, step.result, now):
                yield words + self._after(step.written, step.synced)
        for ended in step.ended or ():
            yield ended_words(ended)
        for arrived in step.arrived or ():
            yield arrived_words(arrived)
        for moved in step.moved or ():
            yield moved_words(moved, now)
        for delivered in step.delivered or ():
            after = self._after(delivered.written, delivered.synced)
            for each in deliveries_of(delivered):
                lease = span(each.deadline - now)
                holder = delivered.waiter.holder
                yield f"{each.id} to {holder}: attempt {each.attempt}, lease {lease}{after}"

    def _result(self, command: Command[Any], result: Any, now: int) -> Iterator[str]:
        match command:
            case commands.Send() | commands.Publish() | commands.Settle():
                yield from receipts_words(result, now)
            case commands.Ack():
                names = {token: name for name, token in self.tokens.items() if "@" in name}
                yield f"stale: {' '.join(names[token] for token in result)}" if result else "settled"
            case commands.Extend():
                yield f"the lease ends in {span(result - now)}"
            case commands.Redrive():
                yield f"redriven: {' '.join('none' if each is None else f'#{each}' for each in result)}"
            case commands.Receive() | commands.Tick():
                return
            case _ if result is not None:
                yield f"returns {result}"

    def _after(self, written: int, synced: int) -> str:
        """The events that must be on the disk before an effect is released."""
        if not self.marks:
            return ""
        needs = [f"#{mark - 1} is {how}" for mark, how in ((written, "written"), (synced, "synced")) if mark]
        return f" (once {' and '.join(needs)})" if needs else " (at once)"


def mailbox_words(record: Any) -> str:
    """A record that moves no message."""
    match record:
        case records.EpochStarted():
            return f"epoch {record.epoch}"
        case records.MailboxOpened():
            return " ".join([short(record.mailbox), *settings_words(record.settings)])
        case records.Subscribed() | records.Unsubscribed():
            return f"{short(record.mailbox)} to {short(record.pattern)}"
        case records.DeadLettersPurged():
            letters = " ".join(f"#{each}" for each in record.dead_sequences)
            return f"{short(record.mailbox)}: letter {letters}"
        case _:
            return short(record.mailbox)


def messages_words(envelopes: Sequence[Envelope]) -> str:
    """Ids, and what the sender said beside the content. Of a batch that agrees it is said once."""
    options = [options_words(envelope) for envelope in envelopes]
    if all(each == options[0] for each in options):
        return " ".join([envelope.id for envelope in envelopes] + options[0])
    return ", ".join(" ".join([e.id, *words]) for e, words in zip(envelopes, options, strict=True))


def options_words(envelope: Envelope) -> list[str]:
    words = []
    if envelope.type == "message" and envelope.content != msgspec.json.encode(envelope.id):
        words.append(f"content={envelope.content.decode()}")
    for name in (
        "type",
        "priority",
        "key",
        "task",
        "correlation_id",
        "max_retries",
        "requires_ack",
        "origin",
    ):
        value = getattr(envelope, name)
        if value != FIELD_DEFAULTS[name]:
            words.append(f"{name}={'yes' if value is True else value}")
    if envelope.delay_ms:
        words.append(f"delay={span(envelope.delay_ms)}")
    if envelope.ttl_ms != TTL_MS_DEFAULT:
        words.append(f"ttl={span(envelope.ttl_ms) if envelope.ttl_ms else 'none'}")
    return words


FIELD_DEFAULTS = msgspec.structs.asdict(Envelope("", "", b""))


def settings_words(settings: Any) -> list[str]:
    usual = msgspec.structs.asdict(type(settings)())
    given = msgspec.structs.asdict(settings)
    return [f"{name}={value}" for name, value in given.items() if value != usual[name]]


def receipts_words(receipts: Sequence[Receipt], now: int) -> Iterator[str]:
    """One line for each, or one for a batch whose messages are all new."""
    if len(receipts) > 1 and not any(each.duplicate or each.due > now for each in receipts):
        ids = " ".join(each.id for each in receipts)
        yield f"receipts of {ids}: #{receipts[0].sequence}-{receipts[-1].sequence}"
        return
    for each in receipts:
        words = [f"receipt of {each.id}: #{each.sequence}"]
        words += ["a duplicate"] if each.duplicate else []
        words += [f"{each.targets} targets"] if each.targets != 1 else []
        words += [f"due in {span(each.due - now)}"] if each.due > now else []
        yield ", ".join(words)


def ended_words(ended: Ended) -> str:
    code = f" with {ended.code}" if ended.code else ""
    why = f" ({ended.reason})" if ended.reason else ""
    return f"log: attempt {ended.attempt} of {ended.message_id} ended{code}{why}: {ended.final_state}"


def arrived_words(arrived: Arrived) -> str:
    return f"{arrived.message_id} {'is forced' if arrived.forced else 'is due'}"


def moved_words(moved: Any, now: int) -> str:
    if not isinstance(moved, BreakerMoved):
        return f"{short(moved.mailbox)} is {'suspended: ' + moved.reason if moved.reason else 'resumed'}"
    until = f" for {span(moved.until - now)}" if moved.state == "open" and moved.until < 1 << 50 else ""
    why = f": {moved.why}" if moved.why else ""
    return f"the breaker of {short(moved.mailbox)} is {moved.state}{until}{why}"
