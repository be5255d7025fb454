"""The texts of a failure, cut to a length that may be kept.

A stack of 15 MB is of no use and would be kept with every attempt. A cut leaves a line with the number of
characters removed, and a digest of the whole by which two texts can be compared.
"""

from __future__ import annotations

from hashlib import sha256

REASON_MAX = 2_000
STACK_MAX = 8_000


def cut_reason(text: str) -> str:
    """Keep the head."""
    return text if len(text) <= REASON_MAX else _cut(text, REASON_MAX, 0)


def cut_stack(text: str) -> str:
    """Keep the first quarter, and the end: the error itself is there."""
    return text if len(text) <= STACK_MAX else _cut(text, STACK_MAX // 4, STACK_MAX - STACK_MAX // 4)


def _cut(text: str, head: int, tail: int) -> str:
    """At most `head + tail` characters, with a line in the middle that says what was cut."""
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    room = len(f"\n… {len(text)} characters cut, sha256 {digest}\n")
    if tail:
        tail -= room
    else:
        head -= room
    mark = f"\n… {len(text) - head - tail} characters cut, sha256 {digest}\n"
    return text[:head] + mark + (text[-tail:] if tail else "")
