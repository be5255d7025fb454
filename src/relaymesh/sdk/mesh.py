"""`Mesh`: the mesh for ordinary, threaded programs."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, Unpack

from relaymesh.client.settings import Transport
from relaymesh.errors import Closed
from relaymesh.kernel.bounds import flag, patience
from relaymesh.node.clock import Clock
from relaymesh.node.settings import Durability
from relaymesh.sdk.agent import Handler
from relaymesh.sdk.endings import FailureTable
from relaymesh.sdk.following import Follower
from relaymesh.sdk.handlers import Limits, checked_handler, checked_step, checked_topic, handler_name
from relaymesh.sdk.hooks import Hooks
from relaymesh.sdk.location import Settings, location_of
from relaymesh.sdk.model_calls import ModelCalls
from relaymesh.sdk.names import Names
from relaymesh.sdk.opening import checked_clock, open_session
from relaymesh.sdk.operations import Operations
from relaymesh.sdk.options import MailboxOptions
from relaymesh.sdk.pool import CORE_DEFAULT, MAX_DEFAULT, WorkerPool, worker_counts
from relaymesh.sdk.renewal import Renewer
from relaymesh.sdk.session import Described, Session
from relaymesh.sdk.stop_signals import exit_of, told_to_stop
from relaymesh.wire.parameters import Parameters

HANDLERS_STOP_S = 15.0
"""How long running handlers may take to finish when the mesh closes."""
WATCH_S = 0.25
"""How often `run` checks whether a signal came or the mesh has failed."""

log = logging.getLogger("relaymesh.sdk")


class Mesh(Operations):
    """A mesh: a directory with a journal, memory only, or a remote node. Thread-safe.

        with Mesh("data") as mesh:
            planner, coder = mesh.agent("planner"), mesh.agent("coder")
            planner.send("coder", {"do": "bump version"})
            with coder.receive(timeout=5) as delivery:
                print(delivery.content)

    `path` is a directory, or the URL of a node (`http://host:port`). Without it: `RELAYMESH_URL`, else
    `RELAYMESH_HOME`, else `~/.relaymesh`. One process at a time may open a directory. If that process is
    `relaymesh serve`, other processes with the same path use its node.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        durability: Durability | None = None,
        settings: Settings | None = None,
        workers: tuple[int, int] | None = None,
        clock: Clock | None = None,
        token: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Open the directory and recover what is in it, or connect to the node.

        path: a directory, or the URL of a node. None: `RELAYMESH_URL`, else `RELAYMESH_HOME`, else
            `~/.relaymesh`.
        durability: when a receipt is returned: `synced` (the message is on the disk), `batched` (it is
            written, and synced within 100 ms), `memory` (nothing is kept, and there is no directory). Short
            for the setting of that name.
        settings: `MeshSettings` for a directory, `RemoteSettings` for a URL.
        workers: threads that run handlers, at first and at most; for `AsyncMesh` the second number is how
            many handlers run at once. None: the settings of the node, by default 4 and 8.
        clock: a clock to use in place of the machine's, for tests: see `relaymesh.testing`.
        token: the access token, for a URL. None: `RELAYMESH_TOKEN`.
        transport: how to connect to the node of a URL: `websocket`, the default, or `http`.
        """
        location = location_of(
            path, durability=durability, settings=settings, token=token, transport=transport
        )
        counts = worker_counts(workers)
        self._start(open_session(location, checked_clock(clock)), counts)

    _session: Session
    hooks: Hooks
    """Functions to call before and after each run of a handler."""

    def _start(self, session: Session, workers: tuple[int, int] | None, *, inline: bool = False) -> None:
        self._session = session
        self._told_limit = 0
        self._workers = workers
        self._names = Names(session.namespace)
        self._tables: dict[str, FailureTable] = {}
        self.hooks = Hooks()
        self._renewer = Renewer(session)
        self._follower = Follower(session, self._follow)
        self._renewer.on_first = self._follower.begin
        self._model_calls = ModelCalls()
        self._pool = WorkerPool(self, *(workers or (CORE_DEFAULT, MAX_DEFAULT)), inline=inline)
        self._closed = threading.Event()

    def _follow(self, values: Parameters) -> None:
        """Apply new settings of the node, except those that the program chose itself."""
        self._renewer.beat.ms = values.lease_heartbeat_ms
        self._model_calls.limit_to(values.llm_parallel_limit)
        if self.path is None:
            self._told_limit = values.payload_max_bytes
        if self._workers is None:
            self._pool.resize(values.thread_pool_core, values.thread_pool_max)

    def model_call(self) -> AbstractContextManager[None]:
        """A block that calls a model. At most `llm_parallel_limit` (4) of a mesh run at once; others wait."""
        self._follower.begin()
        return self._model_calls.one()

    @property
    def path(self) -> os.PathLike[str] | None:
        """The data directory; None for a mesh in memory or a remote mesh."""
        return self._session.path

    def on(
        self,
        topic: str,
        name: str | None = None,
        *,
        concurrency: int | None = None,
        time_limit: float | None = None,
        **options: Unpack[MailboxOptions],
    ) -> Callable[[Handler], Handler]:
        """Decorator: subscribe, and run the function for every message. The subscription has its name.

        `concurrency` and `time_limit` as for `Subscription.handle`.
        """
        checked_topic(topic)
        limits = Limits(concurrency, time_limit)

        def register(handler: Handler) -> Handler:
            subscription = self.subscribe(topic, handler_name(handler) if name is None else name, **options)
            return subscription._serve(handler, limits)

        return register

    def step(
        self,
        agent: str,
        *,
        concurrency: int | None = None,
        time_limit: float | None = None,
        **options: Unpack[MailboxOptions],
    ) -> Callable[[Handler], Handler]:
        """Decorator: run the function for the steps of an agent; what it returns is the step's result.

        `concurrency` and `time_limit` as for `Agent.handle`. It also gets messages that are not steps.
        """
        checked_step(agent)
        limits = Limits(concurrency, time_limit)

        def register(handler: Handler) -> Handler:
            return self.agent(agent, **options)._serve(checked_handler(handler), limits)

        return register

    # -- the end

    def run(self, seconds: float | None = None, *, timeout: float | None = HANDLERS_STOP_S) -> None:
        """Keep handlers running until the mesh is closed, the time is over, or a signal asks to stop.

        After SIGINT (Ctrl-C), SIGTERM or SIGHUP it takes no more messages. Running handlers may finish within
        `timeout` seconds, then `run` returns; the mesh is still open. A second signal ends the wait:
        unfinished deliveries go back without counting an attempt, and `run` raises `KeyboardInterrupt`, or
        `SystemExit` for the other signals. It does not touch a signal that is ignored or that the program
        handles itself, nor any signal outside the main thread. If the mesh has failed, it raises the failure,
        such as `JournalPoisoned`.
        """
        deadline = deadline_of(seconds, time.monotonic())
        most = patience(timeout)
        told: list[signal.Signals] = []
        with told_to_stop(told.append):
            while not told and not self._closed.wait(min(WATCH_S, max(0.0, deadline - time.monotonic()))):
                raise_failure(self._session)
                if time.monotonic() >= deadline:
                    return
            if told:
                log_stop(told[0], most)
                self._pool.close(most, lambda: len(told) > 1)
        if len(told) > 1:
            raise exit_of(told[1])

    def close(self, *, force: bool = False, timeout: float | None = HANDLERS_STOP_S) -> None:
        """Let handlers finish, give back unsettled deliveries, and release the directory. Idempotent.

        Running handlers have `timeout` seconds (None: no limit). Deliveries that they have not finished by
        then, or when Ctrl-C interrupts the wait, go back without counting an attempt. `force` waits for no
        handler, and leaves deliveries that `receive` returned to the next start, as a crash does: their
        attempts count.
        """
        flag(force, "force")
        most = patience(timeout)
        if self._closed.is_set():
            return
        self._closed.set()
        if self._session.forked:
            return  # everything here belongs to the parent
        self._follower.close()  # a pool that closes must not be resized
        try:
            self._pool.close(0.0 if force else most)
        finally:
            self._renewer.close()
            self._session.close(force=force)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def deadline_of(seconds: float | None, now: float) -> float:
    """When a `run` with this time limit ends; infinity without a limit."""
    length = patience(seconds)
    return math.inf if length is None else now + length


def raise_failure(session: Described) -> None:
    """Raise the failure of the mesh, if it has failed; a closed mesh has not."""
    failure = session.failure
    if failure is not None and not isinstance(failure, Closed):
        raise type(failure)(failure.message, hint=failure.hint)


def log_stop(number: signal.Signals, timeout: float | None) -> None:
    within = "when handlers have finished" if timeout is None else f"within {timeout:g} s"
    log.info("%s: stopping %s; a second signal stops at once", number.name, within)
