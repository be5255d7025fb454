"""Schedules in a snapshot, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

from relaymesh.kernel.piece import PIECE_BYTES, PIECE_SIZE, Piece
from relaymesh.kernel.schedules.schedule import Schedule


class SchedulesPiece(Piece, tag=14, frozen=True):
    """The next schedules."""

    schedules: list[Schedule]


def schedule_pieces(schedules: list[Schedule]) -> Iterator[SchedulesPiece]:
    some: list[Schedule] = []
    size = 0
    for each in schedules:
        some.append(each)
        size += each.size
        if len(some) >= PIECE_SIZE or size >= PIECE_BYTES:
            yield SchedulesPiece(some)
            some, size = [], 0
    if some:
        yield SchedulesPiece(some)
