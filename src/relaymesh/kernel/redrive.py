"""Redrive: a dead letter goes back to its mailbox, or to another one, unchanged or edited."""

from __future__ import annotations

from relaymesh.errors import MailboxFull, NotFound, TaskOver
from relaymesh.kernel.address import name_of
from relaymesh.kernel.commands import PurgeDeadLetters, Redrive
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.failures import forget_redriven
from relaymesh.kernel.records import DeadLettersPurged, Redriven
from relaymesh.kernel.tasks.advance import SENDER_NAME, STEP_TYPE
from relaymesh.kernel.tasks.submitting import require_mailbox


def redrive(decision: Decision, command: Redrive) -> list[int | None]:
    """All or none. A letter that was redriven before is left alone; its result is None.

    Unedited, a message keeps its id and its whole envelope; edited, it has the new id that it was given and
    its `origin` names the old one. Either way it is outside dedup, starts with no attempts, goes to the tail
    of its lane, and counts one redrive more. Its delay is over: it is due now.
    """
    pending = {name: _letter(decision, *name) for name in dict.fromkeys(command.letters)}
    pending = {name: letter for name, letter in pending.items() if letter.status == "pending"}
    for waiting in pending.values():
        _require_open_task(decision, waiting, command.to)
    edited = _edited(command)
    envelopes = {name: _message(letter, edited.get(name)) for name, letter in pending.items()}
    _require_room(decision, command.to, envelopes)
    sequences: list[int | None] = []
    for name in command.letters:
        letter = pending.pop(name, None)
        if letter is None:
            sequences.append(None)
            continue
        sequences.append(decision.state.sequence)
        target = command.to or letter.mailbox
        decision.emit(
            Redriven(1, decision.now, letter.mailbox, letter.dead_sequence, target, envelopes[name])
        )
    for mailbox in dict.fromkeys(mailbox for mailbox, _ in command.letters):
        forget_redriven(decision, mailbox)
    decision.after_sync()
    return sequences


def _require_open_task(decision: Decision, letter: DeadLetter, to: str | None) -> None:
    """A step goes on with its letter, if its task still waits for it, in a mailbox that may hold steps."""
    is_step = letter.envelope.type == STEP_TYPE and name_of(letter.envelope.sender) == SENDER_NAME
    link = decision.state.board.letters.get((letter.mailbox, letter.dead_sequence))
    if link is not None and to is not None:
        require_mailbox(decision, link.task.namespace, link.task.name_of(link.number), to)
    if (is_step and link is None) or (link is not None and link.closed):
        raise TaskOver(
            f"dead letter {letter.envelope.id} of {letter.mailbox} was a step of a task that does not wait"
            " for it any more",
            hint="leave it out, or purge it: relaymesh dlq purge ID",
        )


def _edited(command: Redrive) -> dict[tuple[str, int], Envelope | None]:
    """The edited message of each letter. If a letter is named twice, the first counts."""
    edited: dict[tuple[str, int], Envelope | None] = {}
    if command.edited is not None:
        for name, envelope in zip(command.letters, command.edited, strict=True):
            edited.setdefault(name, envelope)
    return edited


def _message(letter: DeadLetter, edited: Envelope | None) -> Envelope:
    """The message that goes back: the letter's own, or the edited one."""
    return letter.envelope if edited is None else edited


def _require_room(decision: Decision, to: str | None, envelopes: dict[tuple[str, int], Envelope]) -> None:
    wanted: dict[str, list[int]] = {}
    for (origin, _), envelope in envelopes.items():
        asked = wanted.setdefault(to or origin, [0, 0])
        asked[0] += 1
        asked[1] += envelope.size
    for target, (messages, size) in wanted.items():
        if not decision.mailbox(target).room_for(messages, size):
            raise MailboxFull(
                f"mailbox {target} has no room for {messages} redriven messages",
                hint="redrive fewer at a time, or let its consumer catch up first",
            )


def _letter(decision: Decision, mailbox: str, dead_sequence: int) -> DeadLetter:
    letter = decision.state.letters.find(mailbox, dead_sequence)
    if letter is None:
        raise NotFound(
            f"there is no dead letter {dead_sequence} of {mailbox}",
            hint="relaymesh dlq list shows those that exist",
        )
    return letter


def purge(decision: Decision, command: PurgeDeadLetters) -> int:
    """Remove dead letters for good. Returns how many there were."""
    by_mailbox: dict[str, list[int]] = {}
    for mailbox, dead_sequence in dict.fromkeys(command.letters):
        _letter(decision, mailbox, dead_sequence)
        by_mailbox.setdefault(mailbox, []).append(dead_sequence)
    for mailbox, dead_sequences in by_mailbox.items():
        decision.emit(DeadLettersPurged(len(dead_sequences), decision.now, mailbox, dead_sequences))
    decision.after_sync()
    return sum(map(len, by_mailbox.values()))
