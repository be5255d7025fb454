"""The envelope: everything that travels with a message.

Built and checked once at the edge (`relaymesh.wire`); here it is a plain, immutable value. Fields are encoded
by position in the journal, so new ones are only appended, with a default.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from relaymesh.kernel.payload import full_size

TTL_MS_DEFAULT = 3_600_000
PRIORITY_DEFAULT = 3


class Priority(IntEnum):
    """1 is delivered first. Tiers: {1, 2} high, {3} normal, {4, 5} low."""

    CRITICAL = 1
    HIGH = 2
    NORMAL = 3
    LOW = 4
    BACKGROUND = 5


PRIORITY_NAMES: dict[str, int] = {
    "critical": 1,
    "urgent": 1,
    "high": 2,
    "normal": 3,
    "medium": 3,
    "low": 4,
    "background": 5,
}

PRIORITY_BY_TYPE: dict[str, int] = {
    "error": 1,
    "task_assign": 2,
    "task_complete": 2,
    "status_report": 4,
    "heartbeat": 5,
}

CONTROL_TYPES = frozenset({"heartbeat", "ping", "pong", "ack", "nack"})
"""Control frames answer a live connection. A sender never queues them; the mesh itself puts `ack` and `nack`
into the mailbox of a sender that asked for them (`requires_ack`)."""


class Encoding(IntEnum):
    """How to read `Envelope.content`. No client gives or sees the last two."""

    JSON = 0
    BYTES = 1
    JSON_IN_FILE = 2
    BYTES_IN_FILE = 3


IN_FILE = 2
"""From this encoding on, `content` is a reference to a payload file: see `kernel/payload.py`. The same
encoding less this much says how to read the file."""


class Envelope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message, without its recipient: the record that accepts it names the recipient."""

    id: str
    sender: str
    content: bytes
    encoding: int = 0
    type: str = "message"
    priority: int = PRIORITY_DEFAULT
    ttl_ms: int = TTL_MS_DEFAULT
    delay_ms: int = 0
    task: str | None = None
    key: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    requires_ack: bool = False
    tags: tuple[str, ...] = ()
    trace: str | None = None
    max_retries: int | None = None
    timestamp_ms: int | None = None
    extra: bytes | None = None
    origin: str | None = None

    @property
    def size(self) -> int:
        """The size of this message against a mailbox's capacity in bytes: content and `extra`."""
        size = len(self.content) if self.encoding < IN_FILE else full_size(self.content)
        extra = self.extra
        return size if extra is None else size + len(extra)


def size_of(envelopes: Iterable[Envelope]) -> int:
    """The size of all of them. `extra` is rare, and a property costs more than the rest of the loop."""
    return sum([e.size if e.extra or e.encoding >= IN_FILE else len(e.content) for e in envelopes])
