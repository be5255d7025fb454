"""inbox --answer: a person at a terminal goes through a mailbox, as an agent would.

Nothing is taken while the person thinks: a message is looked at, and taken when there is an answer for it.
So a question stays answerable by `relaymesh answer` and over HTTP meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from relaymesh.cli.content import read_content
from relaymesh.cli.failure import ConfirmationNeeded, failure_of
from relaymesh.cli.looking import View, look
from relaymesh.cli.moments import span_text
from relaymesh.cli.options import Call
from relaymesh.cli.output import DIM, Styled, preview
from relaymesh.cli.table import short_address
from relaymesh.errors import MeshError, NotFound
from relaymesh.kernel.pending import READY, STATE_NAMES, Pending
from relaymesh.printable import printable
from relaymesh.sdk.agent import Agent
from relaymesh.sdk.delivery import Delivery
from relaymesh.wire.content import decode_content
from relaymesh.wire.tasks import is_step, question_message

TAKEN_MAX = 1_000
"""Messages that are taken to find the one that is answered. The others go back unburned."""
HELP = """\
TEXT         the answer; of a step its result; a JSON object or array is sent as such
NUMBER       of a question with options, that option
(nothing)    leave it as it is
!ack         done, without an answer
!fail WHY    of a step: it has failed for good
!quit        stop here"""


class Waiting(msgspec.Struct, frozen=True):
    """A message that waits, with what a person has to know about it."""

    entry: Pending
    age_s: float
    content: Any

    @property
    def options(self) -> list[str]:
        """The answers that a question of a step allows; none: any."""
        if question_message(self.entry.envelope) is None:
            return []
        return list(self.content.get("options") or ())

    @property
    def kind(self) -> str:
        envelope = self.entry.envelope
        return "step" if is_step(envelope) else envelope.type

    @property
    def question(self) -> Any:
        if question_message(self.entry.envelope) is not None:
            return self.content.get("question")
        return self.content.get("input") if is_step(self.entry.envelope) else self.content


def answer_inbox(call: Call, address: str, limit: int) -> None:
    """Ask about each message that waits. Raises `ConfirmationNeeded` without a terminal."""
    name = short_address(address)
    if call.output.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfirmationNeeded(
            "--answer asks a person, and there is no terminal to ask on",
            hint=f"relaymesh inbox {name} shows what waits, relaymesh answer {name} CONTENT --id ID answers",
        )
    with look(call) as seen:
        waiting = [
            Waiting(entry, max(0, seen.now - entry.accepted_at) / 1000, _content(entry))
            for entry in _ready(seen, address, limit)
        ]
    answered = 0
    for number, each in enumerate(waiting, start=1):
        _show(call, each, f"{number} of {len(waiting)}")
        done = _asked(call, address, each)
        if done is None:
            break
        answered += done
    call.output.note(f"{answered} settled, {len(waiting) - answered} left as they are")


def _ready(seen: View, address: str, limit: int) -> Sequence[Pending]:
    entries = seen.pending(address, limit)
    return [entry for entry in entries if seen.state_name(entry) == STATE_NAMES[READY]]


def _content(entry: Pending) -> Any:
    return decode_content(entry.envelope.content, entry.envelope.encoding)


def _show(call: Call, waiting: Waiting, place: str) -> None:
    envelope = waiting.entry.envelope
    task = f", task {envelope.task}" if envelope.task else ""
    head = (
        f"{place}: {waiting.kind} from {short_address(envelope.sender)}{task}, {span_text(waiting.age_s)} ago"
    )
    call.output.line(Styled(head, DIM))
    call.output.text(preview(waiting.question))
    for number, option in enumerate(waiting.options, start=1):
        call.output.line(f"  {number}  {preview(option)}")
    call.output.flush()


def _asked(call: Call, address: str, waiting: Waiting) -> bool | None:
    """Ask until it is settled or left. Returns whether it was settled; None: the person wants to stop."""
    while True:
        sys.stderr.write("answer (? for help): ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        word = line.strip()
        if not line or word == "!quit":
            return None
        if not word:
            return False
        if word == "?":
            sys.stderr.write(f"{HELP}\n")
            continue
        try:
            _settle(call, address, waiting, word)
        except MeshError as error:
            failure = failure_of(error)
            assert failure is not None
            call.output.fail(failure)
            if isinstance(error, NotFound):
                return False
            continue
        sys.stderr.write(f"settled {printable(waiting.entry.envelope.id)}\n")
        return True


def _settle(call: Call, address: str, waiting: Waiting, word: str) -> None:
    value = _value(call, waiting, word)
    with call.mesh() as mesh:
        agent = Agent(mesh, address)
        delivery = _taken(agent, waiting.entry.envelope.id)
        if word == "!ack":
            delivery.ack(durable=True)
        elif word.startswith("!fail") and is_step(waiting.entry.envelope):
            delivery.fail(word.removeprefix("!fail").strip() or "no reason was given")
        elif is_step(waiting.entry.envelope):
            delivery.finish(value)
        else:
            agent.answer(delivery, value)


def _value(call: Call, waiting: Waiting, word: str) -> Any:
    options = waiting.options
    if options and word.isdecimal() and 1 <= int(word) <= len(options):
        return options[int(word) - 1]
    return read_content(word, call.output, as_json=False, as_text=word == "-")


def _taken(agent: Agent, id: str) -> Delivery:
    for delivery in agent.receive_many(TAKEN_MAX):
        if delivery.id == id:
            return delivery
    raise NotFound(f"message {id!r} does not wait any more", hint="it was taken or settled meanwhile")
