"""Stories: plain text that drives a kernel and shows all that it does, in the manner of raft's transcripts.

    # Comments and empty lines stand as they are.
    > send coder m1 key=a            a command, in words
      #2      Accepted   …           each record that it wrote, with the sequence of its first event
      -> receipt of m1: #2           each effect, which leaves only after the records are durable
    = coder: 1 waiting               each mailbox whose counts changed

The clock moves at `wait` alone, and retries have no jitter. `restart` replays the records, as a journal gives
them back, into a new kernel. A delivery is named by its message; `m1@1` is the one of attempt 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from relaymesh.kernel import commands
from relaymesh.kernel.address import agent_address, pattern_address, subscription_address, topic_address
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.records import AnyRecord, DeadLettered
from relaymesh.kernel.request import Command
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.waiter import Waiter
from tests.kernel.telling import UNITS, Telling, counts, short

NOON = 1_700_000_000_000


def told(text: str) -> str:
    """The story as the kernel tells it now: every command kept, everything below it written anew."""
    story, lines = Story(), []
    for line in text.splitlines():
        if line.startswith("> "):
            lines += [line, *story.tell(line[2:])]
        elif not line.startswith(("  ", "= ")):
            lines.append(line)
    return "\n".join(lines) + "\n"


def milliseconds(text: str) -> int:
    """`90s`, `1m`, `500ms`."""
    found = re.fullmatch(r"(\d+)(ms|h|m|s)", text)
    assert found is not None, f"{text!r} is no span of time such as 90s"
    return int(found[1]) * UNITS[found[2]]


class Words:
    """What stands behind a verb: plain words, and `name=value`."""

    def __init__(self, words: list[str]) -> None:
        self.plain = [word for word in words if "=" not in word]
        self.named = dict(word.split("=", 1) for word in words if "=" in word)

    def envelope(self, id: str) -> Envelope:
        given: dict[str, Any] = dict(self.named)
        fields: dict[str, Any] = {"sender": agent_address(given.pop("from", "planner"))}
        fields["content"] = msgspec.json.encode(given.pop("content", id))
        for name in ("delay", "ttl"):
            if name in given:
                fields[f"{name}_ms"] = milliseconds(given.pop(name))
        for name in ("priority", "max_retries"):
            if name in given:
                fields[name] = int(given.pop(name))
        if "reply_to" in given:
            fields["reply_to"] = agent_address(given.pop("reply_to"))
        fields["requires_ack"] = given.pop("requires_ack", "no") == "yes"
        return Envelope(id, **fields, **given)

    def settings(self) -> MailboxSettings | None:
        values = {name: _value(text) for name, text in self.named.items()}
        return MailboxSettings(**values) if values else None


def _value(text: str) -> Any:
    if text in ("yes", "no"):
        return text == "yes"
    try:
        return int(text)
    except ValueError:
        return text if not re.fullmatch(r"\d*\.\d+", text) else float(text)


class Story:
    """One kernel, its clock, and everything it wrote."""

    def __init__(self) -> None:
        self._now = NOON
        self._records: list[AnyRecord] = []
        self._telling = Telling()
        self._counts: dict[str, str] = {}
        self._kernel = Kernel(lambda: 0.0)
        for _ in self._do(commands.Start(1)):
            pass  # every story begins with it

    def tell(self, line: str) -> Iterator[str]:
        verb, *words = line.split()
        if verb == "show":
            self._telling.marks = words == ["marks"]
        elif verb == "restart":
            yield from self._restart()
        else:
            if verb == "wait":
                self._now += milliseconds(words[0])
            yield from self._do(VERBS[verb](self, Words(words)))
        yield from self._changes()

    def _do(self, command: Command[Any]) -> Iterator[str]:
        step = self._kernel.step(command, self._now)
        self._records += step.records
        yield from self._telling.lines(command, step, self._now)

    def _restart(self) -> Iterator[str]:
        """A crash: memory is gone, the records are not."""
        written = msgspec.msgpack.decode(msgspec.msgpack.encode(self._records), type=list[AnyRecord])
        epoch = self._kernel.state.epoch
        self._kernel = Kernel(lambda: 0.0)
        for record in written:
            self._kernel.apply(record)
        yield from self._do(commands.Start(epoch + 1))

    def _changes(self) -> Iterator[str]:
        now = counts(self._kernel)
        for address in sorted({*now, *self._counts}):
            words = now.get(address, "gone")
            if words != self._counts.get(address, "empty"):
                yield f"= {short(address)}: {words}"
        self._counts = now

    # -- names

    def token(self, name: str) -> int:
        return self._telling.tokens[name]

    def letter(self, mailbox: str, id: str) -> tuple[str, int]:
        """The newest dead letter of a message: the event that buried it."""
        found, sequence = -1, 0
        accepted: dict[int, str] = {}
        for record in self._records:
            for i, envelope in enumerate(_envelopes(record)):
                accepted[sequence + i] = envelope.id
            if isinstance(record, DeadLettered) and record.mailbox == mailbox:
                for i, each in enumerate(record.sequences):
                    found = sequence + i if accepted[each] == id else found
            sequence += record.count
        return mailbox, found

    @property
    def now(self) -> int:
        return self._now


def _envelopes(record: Any) -> list[Envelope]:
    if hasattr(record, "envelope"):
        return [record.envelope]
    return list(getattr(record, "envelopes", ()))


# -- the verbs


def _open(story: Story, words: Words) -> Command[Any]:
    return commands.OpenMailbox(agent_address(words.plain[0]), words.settings())


def _subscribe(story: Story, words: Words) -> Command[Any]:
    pattern, name = words.plain
    settings = words.settings() or MailboxSettings()
    return commands.Subscribe(pattern_address(pattern), subscription_address(pattern, name), settings)


def _unsubscribe(story: Story, words: Words) -> Command[Any]:
    return commands.Unsubscribe(subscription_address(*words.plain))


def _send(story: Story, words: Words) -> Command[Any]:
    to, *ids = words.plain
    return commands.Send([(agent_address(to), [words.envelope(id) for id in ids])])


def _publish(story: Story, words: Words) -> Command[Any]:
    topic, *ids = words.plain
    return commands.Publish(topic_address(topic), [words.envelope(id) for id in ids])


def _receive(story: Story, words: Words) -> Command[Any]:
    named = words.named
    waiter = Waiter(
        named.get("by", "worker"), int(named.get("max", "1")), correlation_id=named.get("correlation_id")
    )
    return commands.Receive(_mailbox(words.plain[0]), waiter, wait="waits" in words.plain)


def _ack(story: Story, words: Words) -> Command[Any]:
    return commands.Ack([story.token(name) for name in words.plain])


def _drop(story: Story, words: Words) -> Command[Any]:
    return commands.Ack([story.token(name) for name in words.plain], drop=True)


def _nack(story: Story, words: Words) -> Command[Any]:
    name, *rest = words.plain
    named = words.named
    return commands.Nack(
        story.token(name),
        named.get("code", "other"),
        named.get("reason", ""),
        retryable="for-good" not in rest,
        delay_ms=milliseconds(named["delay"]) if "delay" in named else None,
        until=story.now + milliseconds(named["until"]) if "until" in named else None,
    )


def _extend(story: Story, words: Words) -> Command[Any]:
    name, length = words.plain
    return commands.Extend(story.token(name), milliseconds(length))


def _release(story: Story, words: Words) -> Command[Any]:
    return commands.Release([story.token(name) for name in words.plain])


def _answer(story: Story, words: Words) -> Command[Any]:
    name, to, id = words.plain
    return commands.Settle(story.token(name), [(agent_address(to), [words.envelope(id)])])


def _expect(story: Story, words: Words) -> Command[Any]:
    mailbox, correlation = words.plain
    return commands.Expect(agent_address(mailbox), correlation)


def _redrive(story: Story, words: Words) -> Command[Any]:
    mailbox, *ids = words.plain
    named = words.named
    to = agent_address(named["to"]) if "to" in named else None
    edited = None
    if "as" in named:
        content = msgspec.json.encode(named["content"])
        edited = [Envelope(named["as"], agent_address("planner"), content, origin=id) for id in ids]
    return commands.Redrive([story.letter(_mailbox(mailbox), id) for id in ids], to, edited)


def _purge(story: Story, words: Words) -> Command[Any]:
    mailbox, *ids = words.plain
    return commands.PurgeDeadLetters([story.letter(_mailbox(mailbox), id) for id in ids])


def _reprioritise(story: Story, words: Words) -> Command[Any]:
    mailbox, priority, *ids = words.plain
    return commands.Reprioritise(agent_address(mailbox), frozenset(ids) or None, int(priority))


def _force(story: Story, words: Words) -> Command[Any]:
    return commands.ForceDelayed(agent_address(words.plain[0]))


def _breaker(story: Story, words: Words) -> Command[Any]:
    mailbox, how = words.plain
    return commands.SetBreaker(agent_address(mailbox), how == "open")


def _wait(story: Story, words: Words) -> Command[Any]:
    return commands.Tick()


def _mailbox(name: str) -> str:
    """An agent's mailbox, or a subscription's as `pattern:name`."""
    return subscription_address(*name.split(":")) if ":" in name else agent_address(name)


VERBS: dict[str, Callable[[Story, Words], Command[Any]]] = {
    "ack": _ack,
    "answer": _answer,
    "breaker": _breaker,
    "drop": _drop,
    "expect": _expect,
    "extend": _extend,
    "force": _force,
    "nack": _nack,
    "open": _open,
    "publish": _publish,
    "purge": _purge,
    "receive": _receive,
    "redrive": _redrive,
    "release": _release,
    "reprioritise": _reprioritise,
    "send": _send,
    "subscribe": _subscribe,
    "unsubscribe": _unsubscribe,
    "wait": _wait,
}
