"""Series of new messages on their way into the tables: what they share is bound once for all of them.

A bound value costs a third of a microsecond under the interpreter's lock, and a row has fourteen. Messages
of one batch differ in sequence, id and content alone, so a series takes sixteen values and its part of two
blobs, out of which SQLite cuts the ids and the hashes with no interpreter in sight.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.kernel.dedup import DIGEST_SIZE, digest_of
from relaymesh.kernel.envelope import IN_FILE, Envelope

SERIES_MIN = 8
"""Fewer messages are rows of their own."""
SERIES_MAX = 1_000
"""As many as the table `numbers` counts."""


class SeriesRows:
    """Series, one after the other, as the statement `insert_series` takes them."""

    width = 16

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._ids_size = 0
        self._digests: list[bytes] = []
        self.rows: list[object] = []

    def take(self, sequence: int, envelopes: Sequence[Envelope], shared: Sequence[object]) -> bool:
        """Whether these are taken as a series; `shared` is namespace and mailbox, and the state and times.

        Ids must be of one length, so that SQLite finds them in the blob by counting.
        """
        count = len(envelopes)
        if not SERIES_MIN <= count <= SERIES_MAX or not _alike(envelopes):
            return False
        ids = [envelope.id for envelope in envelopes]
        text = "".join(ids)
        if len(set(map(len, ids))) != 1 or not text.isascii():
            return False
        e = envelopes[0]
        namespace, mailbox, *how = shared
        digest_at = DIGEST_SIZE * len(self._digests) + 1
        self.rows += (sequence, count, self._ids_size + 1, len(e.id), digest_at, namespace, mailbox,
                      e.type, e.sender, e.task, e.priority, *how)  # fmt: skip
        self._ids.append(text)
        self._ids_size += len(text)
        self._digests += [digest_of(envelope.content) for envelope in envelopes]
        return True

    @property
    def blobs(self) -> tuple[bytes, bytes]:
        """All ids, all hashes."""
        return "".join(self._ids).encode(), b"".join(self._digests)


def _alike(envelopes: Sequence[Envelope]) -> bool:
    first = envelopes[0]
    type, sender, task, priority, delay = first.type, first.sender, first.task, first.priority, first.delay_ms
    for e in envelopes:
        if (
            e.type != type
            or e.sender != sender
            or e.task != task
            or e.priority != priority
            or e.delay_ms != delay
            or e.encoding >= IN_FILE
        ):
            return False
    return True
