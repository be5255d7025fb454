"""Handing over: granted messages, as the values that leave the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, islice
from typing import TypeVar, cast

from relaymesh.kernel.deliveries import NO_LANE, Deliveries
from relaymesh.kernel.entries import sequences_of
from relaymesh.kernel.entry import Entry
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.parcel import Parcel, Part

T = TypeVar("T")


def handed(
    mailbox: Mailbox,
    parts: Sequence[Part],
    token: int,
    sequences: Sequence[int],
    settled: bool,
    remote: bool,
) -> Deliveries:
    """The deliveries of these parts, which were just leased under tokens from `token` on.

    `settled`: they are settled before they leave; call it before that. `remote`: for a remote holder or a
    gateway, which shows more of a message than a program in this process needs.
    """
    if len(parts) == 1:
        part = parts[0]
        if isinstance(part, Parcel):
            return _parcel(mailbox, part, settled, remote)
        if part.lane is None and not mailbox.is_subscription:  # the most frequent case
            return Deliveries(
                mailbox.address,
                (token,),
                (part.sequence,),
                (part.attempts,),
                (part.lease.deadline,),  # type: ignore[union-attr]
                (part.envelope,),
                None,
                None,
                settled,
                (),
                (part.accepted_at,) if remote else None,
                (part.priority,) if remote else None,
                (part.expires_at,) if remote else None,
            )
    tokens, named = range(token, token + len(sequences)), tuple(sequences)
    if Parcel not in set(map(type, parts)):
        return _entries(mailbox, cast("Sequence[Entry]", parts), tokens, named, settled, remote)
    pieces: list[Deliveries] = []
    for kind, some in groupby(parts, type):
        if kind is Parcel:
            pieces += [_parcel(mailbox, cast("Parcel", part), settled, remote) for part in some]
        else:
            entries = cast("list[Entry]", list(some))
            pieces.append(_entries(mailbox, entries, range(0), sequences_of(entries), settled, remote))
    return _joined(mailbox, pieces, tokens, named, settled)


def _parcel(mailbox: Mailbox, parcel: Parcel, settled: bool, remote: bool) -> Deliveries:
    """Works on whole columns: nothing is done per message."""
    count = parcel.count
    return Deliveries(
        mailbox.address,
        parcel.tokens,
        parcel.sequences,
        (1,) * count,
        (parcel.grant.deadline,) * count,
        tuple(parcel.envelopes),
        None,
        (parcel.topic,) if mailbox.is_subscription else None,
        settled,
        (),
        (parcel.accepted_at,) * count if remote else None,
        (parcel.priority,) * count if remote else None,
        (parcel.expires_at,) * count if remote else None,
    )


def _entries(
    mailbox: Mailbox,
    entries: Sequence[Entry],
    tokens: range,
    sequences: Sequence[int],
    settled: bool,
    remote: bool,
) -> Deliveries:
    lanes: list[int] | None = None
    numbers: dict[str, int] = {}
    if any([entry.lane for entry in entries]):  # noqa: C419 - a list is half as slow as a generator
        lanes = [
            NO_LANE if entry.lane is None else numbers.setdefault(entry.lane.key, len(numbers))
            for entry in entries
        ]
    return Deliveries(
        mailbox.address,
        tokens,
        sequences,
        [entry.attempts for entry in entries],
        [entry.lease.deadline for entry in entries],  # type: ignore[union-attr]
        [entry.envelope for entry in entries],
        lanes,
        _each_once([entry.topic for entry in entries]) if mailbox.is_subscription else None,
        settled,
        tuple(numbers),
        [entry.accepted_at for entry in entries] if remote else None,
        [entry.priority for entry in entries] if remote else None,
        [entry.expires_at for entry in entries] if remote else None,
    )


def _each_once(topics: list[str | None]) -> list[str | None]:
    """One topic, if all have the same."""
    return topics[:1] if len(set(topics)) == 1 else topics


def _joined(
    mailbox: Mailbox, pieces: list[Deliveries], tokens: range, sequences: Sequence[int], settled: bool
) -> Deliveries:
    lanes, keys = _lanes_of(pieces)
    topics = [topic for piece in pieces for topic in islice(piece.each_topic, len(piece.sequences))]
    return Deliveries(
        mailbox.address,
        tokens,
        sequences,
        _column([piece.attempts for piece in pieces]),
        _column([piece.deadlines for piece in pieces]),
        _column([piece.envelopes for piece in pieces]),
        lanes,
        _each_once(topics) if mailbox.is_subscription else None,
        settled,
        keys,
        _column([piece.accepted for piece in pieces if piece.accepted is not None]) or None,
        _column([piece.priorities for piece in pieces if piece.priorities is not None]) or None,
        _column([piece.expires for piece in pieces if piece.expires is not None]) or None,
    )


def _column(parts: list[Sequence[T]]) -> list[T]:
    return list(chain.from_iterable(parts))


def _lanes_of(pieces: list[Deliveries]) -> tuple[list[int] | None, tuple[str, ...]]:
    """The lanes of all, renumbered."""
    if not any(piece.lane_keys for piece in pieces):
        return None, ()
    numbers: dict[str, int] = {}
    lanes: list[int] = []
    for piece in pieces:
        if piece.lanes is None:
            lanes += [NO_LANE] * len(piece.sequences)
        else:
            anew = [numbers.setdefault(key, len(numbers)) for key in piece.lane_keys]
            lanes += [NO_LANE if number == NO_LANE else anew[number] for number in piece.lanes]
    return lanes, tuple(numbers)
