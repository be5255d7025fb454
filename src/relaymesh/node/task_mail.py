"""Makes mail about tasks: outcomes for agents that asked for them, updates for owners."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec

from relaymesh.kernel.payload import REFERENCE_MARK, full_size
from relaymesh.kernel.query import OwedNotices, ShowTask
from relaymesh.kernel.step import Delivered, Step
from relaymesh.kernel.tasks.commands import Move, SendNotice
from relaymesh.kernel.tasks.owed import Owed
from relaymesh.node.core import Core
from relaymesh.node.payloads import Payloads
from relaymesh.wire.bodies import TaskNews

__all__ = ["TaskMail", "join_step"]

log = logging.getLogger("relaymesh.node")

RESULT_MAX = 10_000_000
"""The largest result that is sent as mail: a message has at most 10 MiB."""
RETRY_MS = 1_000
"""How soon mail is tried again if its mailbox was full."""


class TaskMail:
    """Sends waiting mail. Thread-safe: if two threads send the same mail, it is sent once."""

    def __init__(self, core: Core, new_ids: Callable[[int], list[str]], payloads: Payloads) -> None:
        self._core = core
        self._new_ids = new_ids
        self._payloads = payloads
        self.on_loop: Callable[[], bool] = lambda: False
        """Whether this thread runs an event loop."""
        self._try_at: int | None = 0
        """When to try what is owed; None: nothing is. A start may find mail of before."""
        self._lock = threading.Lock()

    def send(self, step: Step) -> list[str]:
        """Send waiting mail; mail for a full mailbox is tried again later. The commit of `step` includes it.
        Returns tasks that became ready meanwhile, because each decision also handles what fell due.
        """
        ready: list[str] = []
        tried: set[tuple[str, str]] = set()
        step.owes = False
        while owed := [each for each in self._owed() if (each.task, each.kind) not in tried]:
            for each in owed:
                tried.add((each.task, each.kind))
                if self._is_large(each) and self.on_loop():
                    continue  # an event loop never waits for files: housekeeping does
                sent = self._try(each)
                if sent is not None:
                    join_step(step, sent)
                    ready += sent.ready or ()
        with self._lock:
            self._try_at = self._core.time.now() + RETRY_MS if self._owed() else None
        return ready

    def _is_large(self, owed: Owed) -> bool:
        result = owed.result or b""
        return len(result) >= self._payloads.inline_max or REFERENCE_MARK in result

    def _try(self, owed: Owed) -> Step | None:
        """Mail that cannot be sent stays waiting (None), and does not affect the decision that requested
        it."""
        try:
            sent = self._send(owed)
        except Exception as error:
            if self._core.failure is not None:
                raise
            log.warning("mail about task %s cannot be sent: %s", owed.task, error)
            return None
        if sent.error is not None:
            log.warning("mail about task %s cannot be sent: %s", owed.task, sent.error)
        return sent

    def _send(self, owed: Owed) -> Step:
        (move,), held = self._payloads.file_moves([Move(0, "send", self._content(owed))])
        try:
            command = SendNotice(owed.task, owed.kind, self._new_ids(1)[0], move.content)
            return self._core.submit(command, send_ready=False)
        finally:
            self._payloads.release(held)

    def _owed(self) -> list[Owed]:
        return self._core.read(lambda kernel: kernel.look(OwedNotices()))

    def is_due(self, now: int) -> bool:
        """Whether it is time to try mail for full mailboxes again."""
        with self._lock:
            return self._try_at is not None and self._try_at <= now

    @property
    def next_at(self) -> int | None:
        """When to try again; None: no mail waits."""
        with self._lock:
            return self._try_at

    def _content(self, owed: Owed) -> bytes:
        news = TaskNews(task=owed.task, workflow=owed.workflow, key=owed.key, status=owed.status or "RUNNING")
        if owed.status is not None:
            reason, result = owed.reason, owed.result
            if result is not None and full_size(result) > RESULT_MAX:
                reason, result = (
                    f"its result is too large for a message: relaymesh task show {owed.task}",
                    None,
                )
            whole = msgspec.UNSET if result is None else msgspec.Raw(self._payloads.resolve(result))
            news = msgspec.structs.replace(news, reason=reason or msgspec.UNSET, result=whole)
            return msgspec.json.encode(news)
        shown = self._core.read(lambda kernel: kernel.look(ShowTask(owed.task)))
        if shown is not None:
            view = shown.task
            news = msgspec.structs.replace(
                news,
                status=view.status,
                steps_total=view.steps_total,
                steps_ended=view.steps_ended,
                reason=view.waiting or view.reason or msgspec.UNSET,
            )
        if owed.kind == "budget":
            news = msgspec.structs.replace(
                news, question=f"relaymesh task budget {owed.task} raises its budget"
            )
        return msgspec.json.encode(news)


def join_step(step: Step, other: Step) -> None:
    """The commit of a step also waits for what followed from it."""
    step.written, step.synced = max(step.written, other.written), max(step.synced, other.synced)
    if other.delivered is not None:
        delivered: list[Delivered] = step.delivered or []
        step.delivered = [*delivered, *other.delivered]
