"""The audit log: who did what, when and from where. One hash-chained JSON line for every write.

`append` never waits. One task writes and syncs the collected lines, at most `SYNC_SECONDS` after the first
one. A crash may lose the lines of that time; a torn last line is cut off at the next start; the log records
both. If the disk fails, messages are still accepted, and the log records how many lines it lost
(`audit.gap`): it is never silently incomplete.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.modes import create_file
from relaymesh.server.security.chain import (
    CURRENT,
    GENESIS,
    audit_files,
    number_of,
    redacted,
    rotated_name,
    sealed,
)
from relaymesh.server.security.secretfile import make_private_folder, sync_folder
from relaymesh.server.security.tokens import wall_ms

SYNC_SECONDS = 0.05
BACKLOG_MAX = 20_000
_TAIL_BYTES = 65_536
_OPEN = os.O_RDWR | os.O_APPEND

log = logging.getLogger("relaymesh.server")


class AuditEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened. Text from outside is redacted and shortened before it is written."""

    event: str
    at: int
    token: str = ""
    label: str = ""
    agent: str = ""
    method: str = ""
    route: str = ""
    path: str = ""
    status: int = 0
    remote_addr: str = ""
    user_agent: str = ""
    x_forwarded_for: str = ""
    origin: str = ""
    referer: str = ""
    detail: str = ""
    suppressed: int = 0
    """Events like this one that were counted and not written, since the last that was."""

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return {key: redacted(value) if isinstance(value, str) else value for key, value in found.items()}


class AuditFile:
    """The log on disk. Not thread-safe. The first write finds the end of the chain, cuts off a torn line, and
    continues from there.
    """

    def __init__(self, folder: Path, *, bytes_max: int, files_max: int, now_ms: Callable[[], int]) -> None:
        self._folder = folder
        self._path = folder / CURRENT
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._now_ms = now_ms
        self._fd = -1
        self._size = 0
        self._sound = True
        self._recovered = False
        self._seq = 0
        self._prev = GENESIS

    def write(self, events: list[AuditEvent]) -> None:
        """Append and sync, all or nothing: bytes that were left by an `OSError` are cut off before the
        next line."""
        self._make_ready()
        seq, prev, lines = self._seq, self._prev, []
        for event in events:
            seq += 1
            line, prev = sealed({**event.fields(), "seq": seq}, prev)
            lines.append(line)
        data = b"".join(lines)
        self._sound = False
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        os.fsync(self._fd)
        self._sound = True
        self._size += len(data)
        self._seq, self._prev = seq, prev

    def close(self) -> None:
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _rotate(self) -> None:
        self.close()
        self._put_aside()
        self._begin()
        for old in audit_files(self._folder)[: -self._files_max]:
            old.unlink()

    def _begin(self) -> None:
        self._fd = create_file(self._path, _OPEN)
        self._size = os.fstat(self._fd).st_size
        self._sound = True
        sync_folder(self._folder)

    def _make_ready(self) -> None:
        """At first, find the end of the chain; later, undo what a failure left, or begin a new file."""
        if not self._recovered:
            make_private_folder(self._folder)
            events = self._recover()
            self._recovered = True
            if events:
                self.write(events)
        if self._fd < 0:
            self._begin()
        if not self._sound:
            os.ftruncate(self._fd, self._size)
            self._sound = True
        if self._size >= self._bytes_max:
            self._rotate()

    def _put_aside(self) -> Path:
        number = max((number_of(path) for path in audit_files(self._folder)), default=0) + 1
        return self._path.rename(self._folder / rotated_name(number))

    def _recover(self) -> list[AuditEvent]:
        torn = self._cut_torn_line()
        events = []
        for path in reversed(audit_files(self._folder)):
            if path.stat().st_size == 0:
                continue
            last = _last_line(path)
            if last is None:
                where = path if path != self._path else self._put_aside()
                log.error("the audit log %s ends in a line that cannot be read; a new chain begins", where)
                events.append(self._event("audit.restarted", f"{where.name} ends in a line that is no entry"))
            else:
                self._seq, self._prev = last
            break
        if torn:
            events.append(self._event("audit.recovered", f"a torn line of {torn} bytes was cut off"))
        return events

    def _cut_torn_line(self) -> int:
        try:
            descriptor = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            return 0
        try:
            size = os.fstat(descriptor).st_size
            end = size
            while end > 0:
                start = max(0, end - _TAIL_BYTES)
                os.lseek(descriptor, start, os.SEEK_SET)
                newline = os.read(descriptor, end - start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
            if end < size:
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
            return size - end
        finally:
            os.close(descriptor)

    def _event(self, event: str, detail: str) -> AuditEvent:
        return AuditEvent(event=event, at=self._now_ms(), detail=detail)


def _last_line(path: Path) -> tuple[int, str] | None:
    """Sequence number and hash at the end of a file that ends in a whole line."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        raw = file.read().splitlines()[-1]
    try:
        fields = msgspec.json.decode(raw, type=dict[str, Any])
        return int(fields["seq"]), str(fields["hash"])
    except (msgspec.MsgspecError, KeyError, ValueError):
        return None


class AuditLog:
    """The log as the server uses it: `append` from the event loop, one task that writes."""

    def __init__(
        self,
        folder: Path,
        *,
        bytes_max: int = 67_108_864,
        files_max: int = 16,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.now_ms = now_ms
        self._file = AuditFile(folder, bytes_max=bytes_max, files_max=files_max, now_ms=now_ms)
        self._waiting: list[AuditEvent] = []
        self._missing = 0
        self._wake = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relaymesh-audit")
        self.written = 0
        self.lost = 0

    def append(self, event: AuditEvent) -> None:
        """Queue a line. It is dropped and counted if the disk is far behind, or the log is closed."""
        if self._closing or len(self._waiting) >= BACKLOG_MAX:
            self._missing += 1
            self.lost += 1
            return
        if self._task is None:
            self._waiting.append(AuditEvent(event="server.started", at=self.now_ms()))
            self._task = asyncio.create_task(self._run(), name="relaymesh-audit")
        self._waiting.append(event)
        self._wake.set()

    async def close(self) -> None:
        """Write what is left, and end."""
        if self._task is not None and not self._closing:
            self.append(AuditEvent(event="server.stopped", at=self.now_ms()))
            self._closing = True
            self._wake.set()
            await self._task
        self._closing = True
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting or not self._closing:
            await self._wake.wait()
            self._wake.clear()
            if not self._closing:
                await asyncio.sleep(SYNC_SECONDS)  # one sync for all lines that come meanwhile
            batch, self._waiting = self._waiting, []
            if batch:
                await self._write(loop, batch)
        await loop.run_in_executor(self._thread, self._file.close)

    async def _write(self, loop: asyncio.AbstractEventLoop, batch: list[AuditEvent]) -> None:
        entries, missing = len(batch), self._missing
        if missing:
            detail = f"{missing} entries before this one could not be written"
            batch = [AuditEvent(event="audit.gap", at=self.now_ms(), detail=detail), *batch]
        try:
            await loop.run_in_executor(self._thread, self._file.write, batch)
        except OSError as error:
            self._missing += entries
            self.lost += entries
            log.error("the audit log cannot be written, %d entries are lost: %s", entries, error)
        else:
            self._missing -= missing
            self.written += entries
