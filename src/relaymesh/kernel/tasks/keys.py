"""Idempotency keys of tasks: the same request runs once.

A key is kept in memory while its task lives, and after its end until the store has it. A submit contains what
the store has for its key, and the sequence that the store had reached. If this table forgot a key after that
sequence, the caller must look again, or the task might run twice.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from relaymesh.kernel.tasks.status import Status

if TYPE_CHECKING:
    from relaymesh.kernel.records import TaskEnded
    from relaymesh.kernel.tasks.task import Task

KEY_DAYS = 7
KEY_MS = KEY_DAYS * 86_400_000
KEYS_MAX = 100_000
"""How many ended keys are kept in memory if there is no store."""


class KeyHeld(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The task of a key."""

    task: str
    request: bytes
    status: Status | None = None
    """How the task ended; None while it lives."""
    ended_at: int = 0
    through: int = 0
    """The sequence after the record that ended it."""


class Keys:
    """By namespace and key."""

    __slots__ = ("_ended", "_live", "forgotten", "keep_ms")

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], KeyHeld] = {}
        self._ended: OrderedDict[tuple[str, str], KeyHeld] = OrderedDict()
        self.keep_ms = KEY_MS
        """Volatile. How long ended keys are kept where there is no store to keep them."""
        self.forgotten = 0
        """Every key forgotten here ended below this sequence."""

    def begin(self, task: Task) -> None:
        name = task.namespace, task.key
        self._ended.pop(name, None)
        self._live[name] = KeyHeld(task.id, task.request)

    def end(self, task: Task, record: TaskEnded, through: int) -> None:
        name = task.namespace, task.key
        del self._live[name]
        self._ended[name] = KeyHeld(task.id, task.request, record.status, record.at, through)

    def find(self, namespace: str, key: str) -> KeyHeld | None:
        name = namespace, key
        return self._live.get(name) or self._ended.get(name)

    def forget(self, applied: int | None, now: int) -> None:
        """Forget ended keys that the store has, or, without a store (None), that are old or too many."""
        while self._ended:
            name, held = next(iter(self._ended.items()))
            if applied is None:
                if held.ended_at + self.keep_ms > now and len(self._ended) <= KEYS_MAX:
                    return
            elif held.through > applied:
                return
            del self._ended[name]
            if applied is not None:  # without a store, to look again would not help
                self.forgotten = max(self.forgotten, held.through)

    def ended(self) -> list[tuple[str, str, KeyHeld]]:
        """The keys of ended tasks that are still kept, for a checkpoint."""
        return [(*name, held) for name, held in self._ended.items()]

    def restore(self, namespace: str, key: str, held: KeyHeld) -> None:
        self._ended[namespace, key] = held
