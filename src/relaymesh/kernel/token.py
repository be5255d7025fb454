"""Lease tokens: a number inside, a text outside. Each names one attempt, and is never given out twice."""

from __future__ import annotations

TOKEN_COUNTER_BITS = 40


def format_token(token: int, partition: int = 0) -> str:
    """`partition.epoch.counter`, as clients see it."""
    return f"{partition}.{token >> TOKEN_COUNTER_BITS}.{token & ((1 << TOKEN_COUNTER_BITS) - 1)}"


def parse_token(text: str) -> int | None:
    """The inverse of `format_token`; None for anything else."""
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isdecimal() and part.isascii() for part in parts):
        return None
    return int(parts[1]) << TOKEN_COUNTER_BITS | int(parts[2])
