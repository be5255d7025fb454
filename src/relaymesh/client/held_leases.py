"""The deliveries that a client holds, by their tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relaymesh.kernel.deliveries import NO_LANE, Deliveries
from relaymesh.wire.frames import Attempt


class HeldLeases:
    """Every lease that was received, and neither settled nor seen to expire.

    Deliveries that came together are kept together, without their content. Only the set of remaining tokens
    and the deadlines change. Any thread may call `holds`; the rest belongs to the client's loop.
    """

    def __init__(self) -> None:
        self._batches: dict[int, Deliveries] = {}
        """By token: the batch that it came with."""
        self._extended: dict[int, int] = {}
        """Deadlines that were extended since the delivery came."""

    @property
    def tokens(self) -> list[int]:
        return list(self._batches)

    def holds(self, token: int) -> bool:
        return token in self._batches

    def deadline(self, token: int) -> int:
        """When the lease ends, as far as is known; 0 for an unknown token."""
        extended = self._extended.get(token)
        if extended is not None:
            return extended
        batch = self._batches.get(token)
        return 0 if batch is None else batch.deadlines[_row(batch, token)]

    def attempt(self, token: int) -> Attempt | None:
        """The delivery in the form that requests to a node use."""
        batch = self._batches.get(token)
        if batch is None:
            return None
        row = _row(batch, token)
        return batch.mailbox, batch.sequences[row], batch.attempts[row], self.deadline(token)

    def arrived(self, got: Deliveries) -> None:
        """Add deliveries of one mailbox. Those that are already settled are left out."""
        if not got.settled:
            # One remaining token must not keep the content of the whole batch.
            bare = msgspec.structs.replace(got, envelopes=())
            self._batches.update(dict.fromkeys(got.tokens, bare))

    def drop(self, tokens: Sequence[int]) -> None:
        """Remove tokens that were settled, lost or given back."""
        batches, extended = self._batches, self._extended
        for token in tokens:
            batches.pop(token, None)
        if extended:
            for token in tokens:
                extended.pop(token, None)

    def returned(self, token: int) -> None:
        """It failed and goes back to its lane: remove it and the deliveries behind it in the lane."""
        self.drop([token, *self._later(token)])

    def _later(self, token: int) -> list[int]:
        batch = self._batches.get(token)
        if batch is None or batch.lanes is None:
            return []
        row = _row(batch, token)
        lane = batch.lanes[row]
        if lane == NO_LANE:
            return []
        after = zip(batch.tokens[row + 1 :], batch.lanes[row + 1 :], strict=True)
        return [each for each, number in after if number == lane]

    def drop_expired(self, before: int) -> None:
        """Remove leases that ended before this time: their holder no longer uses them."""
        self.drop([token for token in self._batches if self.deadline(token) < before])

    def deadlines(self, extends: Sequence[tuple[int, int]]) -> list[int]:
        """The known deadlines of leases to be extended, for a later call of `extended`."""
        return [self.deadline(token) for token, _ in extends]

    def extended(
        self, extends: Sequence[tuple[int, int]], before: Sequence[int], deadlines: Sequence[int | None]
    ) -> None:
        """The node's answer to extensions: deadlines, or None for leases that are lost.

        If two answers overtook each other, the later deadline holds.
        """
        for (token, _), known, deadline in zip(extends, before, deadlines, strict=True):
            if deadline is None:
                self.drop([token])
            elif token in self._batches:
                now = self.deadline(token)
                self._extended[token] = deadline if now == known else max(now, deadline)

    def clear(self) -> None:
        self._batches.clear()
        self._extended.clear()


def _row(batch: Deliveries, token: int) -> int:
    """The index of a token. Tokens given out together are consecutive, so the first guess is nearly always
    right.
    """
    tokens = batch.tokens
    row = token - tokens[0]
    return row if 0 <= row < len(tokens) and tokens[row] == token else tokens.index(token)
