"""The texts of a failure, cut to a length that may be kept.

A stack of 15 MB helps nobody and is kept with every attempt. What is cut leaves a line that says how much it
was, and a digest of the whole by which two of them can be compared.
"""

from __future__ import annotations

from hashlib import sha256

REASON_MAX = 2_000
STACK_MAX = 8_000


def cut_reason(text: str) -> str:
    """The head stays."""
    return text if len(text) <= REASON_MAX else _cut(text, REASON_MAX, 0)


def cut_stack(text: str) -> str:
    """The first quarter stays, and the end: the error itself is there."""
    return text if len(text) <= STACK_MAX else _cut(text, STACK_MAX // 4, STACK_MAX - STACK_MAX // 4)


def _cut(text: str, head: int, tail: int) -> str:
    """At most `head + tail` characters, with a line in the middle that says what is missing."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    room = len(f"\n… {len(text)} characters cut, sha256 {digest}\n")
    if tail:
        tail -= room
    else:
        head -= room
    mark = f"\n… {len(text) - head - tail} characters cut, sha256 {digest}\n"
    return text[:head] + mark + (text[-tail:] if tail else "")
