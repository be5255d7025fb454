"""Following: a program that runs handlers uses the settings of its node, and applies changes while it runs.

`thread_pool_core`, `thread_pool_max`, `lease_heartbeat_ms`, `llm_parallel_limit` and, for a remote mesh,
`payload_max_bytes`. Values that the program chose itself, such as `workers=(2, 2)`, take precedence.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

import msgspec

from relaymesh.errors import MeshError
from relaymesh.sdk.session import AsyncSession, Session
from relaymesh.wire.parameters import DEFAULTS, ROWS, Parameters
from relaymesh.wire.settings import SettingsShown, ShowSettings

__all__ = ["FOLLOW_S", "AsyncFollower", "Follower", "values_in"]

FOLLOW_S = 5.0
"""How often a program asks its node for the settings."""
CLOSE_S_MAX = 1.0

log = logging.getLogger("relaymesh.sdk")

Take = Callable[[Parameters], None]


def values_in(shown: SettingsShown) -> Parameters:
    """The settings that a node reported; settings that this version does not know are ignored."""
    known = {ROWS[each.name].field: each.value for each in shown.settings if each.name in ROWS}
    return msgspec.structs.replace(DEFAULTS, **known)


class Follower:
    """Asks in a thread that starts with the first handler, delivery or model call."""

    def __init__(self, session: Session, take: Take) -> None:
        self._session = session
        self._take = take
        self._values: Parameters | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._ended = threading.Event()

    def begin(self) -> None:
        """Follow from now on. Does not wait."""
        if self._thread is None:
            with self._starting:
                self._start()

    def _start(self) -> None:
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._run, name="relaymesh-settings", daemon=True)
            self._thread.start()

    def look(self) -> None:
        """Ask now. Raises what the session raises."""
        values = values_in(self._session.execute(ShowSettings()))
        if values != self._values:
            self._values = values
            self._take(values)

    def _run(self) -> None:
        while True:
            try:
                self.look()
            except MeshError as error:
                if not error.retryable:
                    log.debug("the settings of the node are not followed: %s", error)
                    return
            if self._ended.wait(FOLLOW_S):
                return

    def close(self) -> None:
        """End the thread. If it waits for a node that does not answer, it ends later by itself."""
        with self._starting:
            self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S_MAX)


class AsyncFollower:
    """Asks in a task that starts with the first handler, delivery or model call."""

    def __init__(self, session: AsyncSession, take: Take) -> None:
        self._session = session
        self._take = take
        self._values: Parameters | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Follow from now on. Does not wait."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="relaymesh-settings")

    async def look(self) -> None:
        """Ask now. Raises what the session raises."""
        values = values_in(await self._session.execute(ShowSettings()))
        if values != self._values:
            self._values = values
            self._take(values)

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except MeshError as error:
                if not error.retryable:
                    log.debug("the settings of the node are not followed: %s", error)
                    return
            await asyncio.sleep(FOLLOW_S)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
