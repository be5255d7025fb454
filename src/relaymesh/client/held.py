"""The deliveries a client holds: by their tokens, what it was told of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from relaymesh.kernel.deliveries import NO_LANE, Deliveries
from relaymesh.wire.frames import Attempt


class HeldLeases:
    """Every lease that came and was neither settled nor seen to run out.

    Those that came together are kept as they came, but for their content; what changes is which of their
    tokens are still here, and until when. Any thread may ask `holds`; the rest belongs to the client's loop.
    """

    def __init__(self) -> None:
        self._batches: dict[int, Deliveries] = {}
        """What each token came with."""
        self._extended: dict[int, int] = {}
        """Deadlines that are others than those they came with."""

    @property
    def tokens(self) -> list[int]:
        return list(self._batches)

    def holds(self, token: int) -> bool:
        return token in self._batches

    def deadline(self, token: int) -> int:
        """When the lease ends as far as is known; 0 for one that is not here."""
        extended = self._extended.get(token)
        if extended is not None:
            return extended
        batch = self._batches.get(token)
        return 0 if batch is None else batch.deadlines[_row(batch, token)]

    def attempt(self, token: int) -> Attempt | None:
        """The delivery as a node is asked about it."""
        batch = self._batches.get(token)
        if batch is None:
            return None
        row = _row(batch, token)
        return batch.mailbox, batch.sequences[row], batch.attempts[row], self.deadline(token)

    def arrived(self, got: Deliveries) -> None:
        """Deliveries of one mailbox. Those that are settled already need not be held."""
        if not got.settled:
            bare = msgspec.structs.replace(got, envelopes=())  # one token shall not keep the content of all
            self._batches.update(dict.fromkeys(got.tokens, bare))

    def drop(self, tokens: Sequence[int]) -> None:
        """They are settled, or lost, or were given back."""
        batches, extended = self._batches, self._extended
        for token in tokens:
            batches.pop(token, None)
        if extended:
            for token in tokens:
                extended.pop(token, None)

    def returned(self, token: int) -> None:
        """It failed and goes back to its lane: so do those that were to come after it."""
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
        """Leases that ended before this time: their holder forgot them."""
        self.drop([token for token in self._batches if self.deadline(token) < before])

    def deadlines(self, extends: Sequence[tuple[int, int]]) -> list[int]:
        """When the leases to be extended end as far as is known, to be given to `extended`."""
        return [self.deadline(token) for token, _ in extends]

    def extended(
        self, extends: Sequence[tuple[int, int]], before: Sequence[int], deadlines: Sequence[int | None]
    ) -> None:
        """What the node answered to extensions: deadlines, or None for leases that are lost.

        Of two answers that may have overtaken each other the later deadline holds.
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
    """Where it stands. Tokens given out together follow each other, so it is nearly always known at once."""
    tokens = batch.tokens
    row = token - tokens[0]
    return row if 0 <= row < len(tokens) and tokens[row] == token else tokens.index(token)
