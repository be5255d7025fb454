"""The supervisor: runs the agents of a team under leases of the node, and follows its file.

It is a separate process and a remote holder: a restart of the node ends no run and voids no lease. At its
start it ends the processes that a killed supervisor left, and abandons their deliveries, so that their work
is granted again at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from relaymesh.agents.agent_tokens import AgentTokens
from relaymesh.agents.crew import Crew
from relaymesh.agents.declarations import Team
from relaymesh.agents.member import Tell
from relaymesh.agents.node_link import NodeLink
from relaymesh.agents.orders import Answer, Order, Orders
from relaymesh.agents.places import Places
from relaymesh.agents.run_records import RunRecords
from relaymesh.agents.takeover import end_marked_with, lock_when_free
from relaymesh.agents.team_file import read_sound, team_of
from relaymesh.agents.team_status import TeamStatus
from relaymesh.errors import MeshError
from relaymesh.kernel.tasks.commands import Abandon
from relaymesh.modes import replace_file
from relaymesh.server.address import server_folder
from relaymesh.server.security.tokens import TokenFile

__all__ = ["Supervisor"]

LOOK_EVERY_S = 0.25
FILE_EVERY_S = 1.0
RESTART = "restart"


class Supervisor:
    """One run of the supervisor. `stop` and `look_at_file` may be called from signal handlers."""

    def __init__(self, places: Places, file: Path, *, grace_s: float, tell: Tell) -> None:
        self._places = places
        self._file = file
        self._grace_s = grace_s
        self._tell = tell
        self._records = RunRecords(places.records)
        self._tokens = AgentTokens(places.tokens, TokenFile(server_folder(places.directory)))
        self._status = TeamStatus(places)
        self._orders = Orders(places.orders)
        self._node = NodeLink(places.directory, places.sessions)
        self._crew: Crew
        self._asked = asyncio.Event()
        self._seen: tuple[int, int] | None = None
        self._look_again = 0.0
        self._changes: set[asyncio.Task[None]] = set()

    def stop(self, why: str) -> None:
        if not self._asked.is_set():
            self._tell("supervisor.stopping", f"{why}: the agents stop")
            self._asked.set()

    def look_at_file(self) -> None:
        """Read the file again now, even if its size and time are the same."""
        self._seen = None
        self._look_again = 0.0

    # -- the life

    async def run(self) -> None:
        places = self._places
        places.make()
        lock = await lock_when_free(places.supervisor_lock, self._asked)
        if lock is None:
            return
        try:
            self._seen = self._signature()
            team = self._team_at_start()
            mark = places.take_mark()
            await self._take_over(mark)
            self._crew = Crew(
                places,
                tokens=self._tokens,
                records=self._records,
                mark=f"{mark}.{time.time_ns() // 1_000_000:x}",
                node=self._node,
                tell=self._tell,
            )
            beginning = asyncio.create_task(self._crew.change_to(team), name="begin")
            await self._until_asked(beginning)
            if beginning.done():
                beginning.result()
                names = [each.name for each in team.agents]
                count = f"{self._crew.at_work} of {len(names)} agents are at work"
                self._tell("ready", count, agents=names)
                await self._work()
            await self._wind_up()
        finally:
            lock.release()

    async def _until_asked(self, task: asyncio.Task[None]) -> None:
        """Wait for the task or for the stop: the node may be down."""
        asked = asyncio.create_task(self._asked.wait())
        await asyncio.wait({task, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})

    async def _work(self) -> None:
        """Check the file, orders and tokens until asked to stop."""
        self._orders.forget_answers()
        while not self._asked.is_set():
            self._look()
            try:
                await asyncio.wait_for(self._asked.wait(), LOOK_EVERY_S)
            except TimeoutError:
                continue

    async def _wind_up(self) -> None:
        """No new work; running steps may finish; the others go back without a counted attempt."""
        await self._crew.stop(self._grace_s)
        for change in list(self._changes):
            await asyncio.wait({change})
        self._status.write([])
        self._node.note()
        self._tell("supervisor.stopped", "the agents have stopped; unfinished deliveries went back")

    # -- the start

    def _team_at_start(self) -> Team:
        """What the file declares; while it is wrong, what it declared when it was sound last."""
        try:
            team, data = read_sound(self._file)
        except MeshError as error:
            before = self._team_before()
            if before is None:
                raise
            self._tell("file.refused", f"{error.message}; the agents go on as it declared them before")
            return before
        self._keep(data)
        return team

    def _team_before(self) -> Team | None:
        try:
            return team_of(self._places.sound_file.read_bytes(), self._file)[0]
        except OSError:
            return None

    def _keep(self, data: bytes) -> None:
        """For a successor that finds the file broken. A full disk leaves the one before."""
        with contextlib.suppress(OSError):
            replace_file(self._places.sound_file, data)

    async def _take_over(self, mark: str) -> None:
        """End what a killed supervisor left, and abandon its deliveries. Those that were granted to it and
        are not on record go back unburned: nothing was started for them.
        """
        records = self._records.read()
        self._node.read_left()
        ended = await asyncio.to_thread(end_marked_with, mark)
        await asyncio.to_thread(self._tokens.revoke_left)
        if not records:
            await self._node.end_left()
            return
        session = await self._node.connect()
        try:
            stale = await session.execute(Abandon([each.token for each in records], "its supervisor died"))
            for each in records:
                detail = f"run {each.run}: attempt {each.attempt}: its supervisor died"
                await session.note_run(each.agent, "kill", detail)
        finally:
            await session.close()
        await self._node.end_left()  # after the abandonment, which counts
        for record in records:
            self._records.remove(record.run)
        abandoned = len(records) - len(stale)
        self._tell(
            "supervisor.took_over",
            f"{abandoned} attempts of a dead supervisor abandoned, {ended} processes ended",
            records=len(records),
            abandoned=abandoned,
            processes=ended,
        )

    # -- while they work

    def _look(self) -> None:
        """Called once per tick. Long work is done in the background."""
        now = time.monotonic()
        if now >= self._look_again:
            self._look_again = now + FILE_EVERY_S
            self._look_at_changes()
            self._beside(self._crew.look_after())
        while (found := self._orders.next()) is not None:
            self._beside(self._obey(*found))
        self._status.write(self._crew.shown())

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changed)

    def _changed(self, task: asyncio.Task[None]) -> None:
        self._changes.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell("supervisor.note", f"supervisor: a change failed: {type(error).__name__}: {error}")

    async def _obey(self, id: str, order: Order) -> None:
        if order.do != RESTART:
            self._orders.answer(id, Answer(problem=f"there is no order {order.do!r}"))
            return
        done, problem = await self._crew.restart(order.agents)
        self._status.write(self._crew.shown())
        self._orders.answer(id, Answer(tuple(done), problem))

    def _look_at_changes(self) -> None:
        seen = self._signature()
        if seen == self._seen or seen is None:
            return
        self._seen = seen
        try:
            data = self._file.read_bytes()
        except OSError as error:
            self._tell("file.refused", f"{self._file.name} cannot be read: {error}; nothing was changed")
            return
        team, problems = team_of(data, self._file)
        for problem in problems:
            self._tell("file.refused", f"{problem}; nothing was changed")
        before = self._crew.team
        if team is None or before is None:
            return
        self._keep(data)
        if team.mesh != before.mesh:
            self._tell("file.waits", "a change of [mesh] takes effect at the next relaymesh up")
        if team.agents != before.agents:
            self._tell("file.read", f"{self._file.name} has changed")
        self._beside(self._crew.change_to(team))

    def _signature(self) -> tuple[int, int] | None:
        try:
            found = self._file.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size
