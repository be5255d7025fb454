"""The durable state as a picture that can be compared: before a mesh ends, and after its next start."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.kernel.snapshot import AgentsPiece, EntriesPiece, LettersPiece, MailboxPiece, Snapshot
from relaymesh.kernel.state import State
from relaymesh.node.node import Node
from relaymesh.wire.snapshot import decode_piece, encode_piece

DEAD_LETTER_MS = 30 * 86_400_000
"""How long dead letters are kept, unless settings say otherwise."""


class Seen(msgspec.Struct, frozen=True):
    """One pending message. `held`: it was out with a receiver, whose end may have cost an attempt."""

    id: str
    sequence: int
    expires_at: int
    held: bool
    rest: Any


class Picture(msgspec.Struct, frozen=True):
    now: int
    sequence: int
    mailboxes: dict[str, Any]
    entries: dict[str, list[Seen]]
    letters: dict[tuple[str, int], Any]
    agents: list[Any]


def picture_of(node: Node) -> Picture:
    """Everything durable, as a checkpoint would keep it: it is encoded and read back on the way."""
    core = node.core
    with core._lock:
        return _picture(core.kernel.state)


def unstored(node: Node) -> str | None:
    """Why the store does not follow the journal; None when it does."""
    if node.projector is None or node.core.failure is not None:
        return None
    try:
        node.catch_up(10.0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if node.projector.failed is None else repr(node.projector.failed)


def _picture(state: State) -> Picture:
    picture = Picture(state.now, state.sequence, {}, {}, {}, [])
    keep = state.keep
    snapshot = Snapshot(state)
    state.keep = keep  # a checkpoint may be drawn at the same time
    for drawn in snapshot.pieces():
        piece = decode_piece(encode_piece(drawn))
        if isinstance(piece, MailboxPiece):
            picture.mailboxes[piece.address] = (piece.settings, piece.halted, piece.pattern)
        elif isinstance(piece, EntriesPiece):
            picture.entries.setdefault(piece.mailbox, []).extend(map(_seen, piece.entries))
        elif isinstance(piece, LettersPiece):
            picture.letters.update({(each.mailbox, each.dead_sequence): each for each in piece.letters})
        elif isinstance(piece, AgentsPiece):
            picture.agents.extend(piece.agents)
    return picture


def _seen(piece: Any) -> Seen:
    rest = (
        piece.envelope,
        piece.due_at,
        piece.priority,
        piece.attempts,
        piece.deferrals,
        piece.redrives,
        piece.completed,
        piece.failures,
    )
    ttl = piece.envelope.ttl_ms
    expires_at = piece.due_at + ttl if ttl else 0
    return Seen(piece.envelope.id, piece.sequence, expires_at, piece.held is not None, rest)


def differences(before: Picture, after: Picture, *, busy: bool = False) -> list[str]:
    """What a restart changed and should not have. Time may have passed: what expired meanwhile is gone.

    `busy`: handlers were at work when it was killed. What they had decided and not written nobody was told
    of: mailboxes that they may serve are left out.
    """
    if busy:
        before = _without_handled(before)
        after = _without_handled(after)
    found = []
    for address, seen in before.mailboxes.items():
        settings, halted, pattern = after.mailboxes.get(address, (None, [], None))
        still = [each for each in halted if each in seen[1]]  # a message that a kill ended may halt its lane
        if (settings, still, pattern) != seen:
            found.append(f"mailbox {address!r} was {seen} and is {after.mailboxes.get(address)}"[:600])
    for address, entries in before.entries.items():
        found += _moved(address, entries, after)
    for address, entries in after.entries.items():
        known = {each.sequence for each in before.entries.get(address, ())}
        found += [
            f"message {each.id!r} ({each.sequence}) of {address!r} was settled and is back"
            for each in entries
            if each.sequence not in known and each.sequence < before.sequence
        ]
    died = {mailbox for mailbox, dead_sequence in after.letters if dead_sequence >= before.sequence}
    for name, letter in before.letters.items():
        if letter.status == "redriven" and name[0] in died:
            continue  # a message that the start gave up took its room: see `forget_redriven`
        if name not in after.letters:
            age_ms = after.now - letter.at
            if age_ms < DEAD_LETTER_MS:
                found.append(f"dead letter {name} is gone, {age_ms} ms old, of {letter.status}")
        elif after.letters[name] != letter:
            found.append(f"dead letter {name} was {letter} and is {after.letters[name]}"[:600])
    if before.agents != after.agents:
        found.append(f"agents were {before.agents} and are {after.agents}"[:600])
    return found


def _without_handled(picture: Picture) -> Picture:
    def served(address: str) -> bool:
        return ":" in address or address in ("default/w1", "default/oracle")

    return msgspec.structs.replace(
        picture,
        entries={address: seen for address, seen in picture.entries.items() if not served(address)},
        letters={name: letter for name, letter in picture.letters.items() if not served(name[0])},
    )


def _moved(address: str, entries: list[Seen], after: Picture) -> list[str]:
    now = {each.sequence: each for each in after.entries.get(address, [])}
    order = [sequence for sequence in now if any(each.sequence == sequence for each in entries)]
    if order != [each.sequence for each in entries if each.sequence in now]:
        return [f"the messages of {address!r} changed their order"]
    found = []
    for each in entries:
        there = now.get(each.sequence)
        if there is None:
            expired = each.expires_at and each.expires_at <= after.now
            if not expired and not each.held:
                found.append(f"message {each.id!r} ({each.sequence}) of {address!r} is gone")
        elif not each.held and there.rest != each.rest:
            found.append(f"message {each.id!r} of {address!r} was {each.rest} and is {there.rest}"[:600])
    return found
