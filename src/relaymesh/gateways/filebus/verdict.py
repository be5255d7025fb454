"""A worker's verdict on a delivery that it moved to `dead/`: a small JSON file, written before the move."""

from __future__ import annotations

import msgspec

from relaymesh.errors import MeshError
from relaymesh.gateways.filebus.names import VERDICT
from relaymesh.gateways.filebus.tree import Tree
from relaymesh.kernel.bounds import DURATION_MS_MAX
from relaymesh.kernel.commands import Nack
from relaymesh.wire.envelope import DELAY_MS_MAX

VERDICT_BYTES_MAX = 65_536
REASON_LENGTH_MAX = 10_000


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """`<stem>.verdict.json`. Every field may be left out; without a file, all of them are."""

    code: str = "other"
    """The row of the mailbox's failure contract: `invalid`, `timeout`, `rate_limited`, `fatal`, …"""
    reason: str = ""
    retryable: bool = False
    """Whether it may be tried again. Refused for good otherwise."""
    delay_ms: int | None = None
    """When to try again; by the mailbox's backoff if left out."""
    defer_ms: int | None = None
    """Not now: delivered again after so long, and no attempt is burned."""

    def nack(self, token: int, now: int) -> Nack:
        code = self.code[:128] or "other"
        reason = self.reason[:REASON_LENGTH_MAX]
        until = None if self.defer_ms is None else min(now + _bounded(self.defer_ms), DURATION_MS_MAX)
        delay = None if self.delay_ms is None else _bounded(self.delay_ms)
        return Nack(token, code, reason, "", self.retryable, delay, until)


def _bounded(ms: int) -> int:
    return min(max(0, ms), DELAY_MS_MAX)


def read_verdict(tree: Tree, stem: str) -> Verdict:
    """What the worker wrote; a verdict that cannot be read is one of refusal, and says so."""
    try:
        read = tree.dead.read(stem + VERDICT, VERDICT_BYTES_MAX, tree.owners)
        if read is None:
            return Verdict(reason="moved to dead/ without a verdict")
        return msgspec.json.decode(read[0], type=Verdict)
    except (MeshError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return Verdict(reason=f"moved to dead/ with a verdict that cannot be read: {error}"[:500])
