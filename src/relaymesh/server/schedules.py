"""Schedules, as a credential may put, see, pause and remove them.

| needs | what |
|---|---|
| `write` | put, pause, resume, remove |
| `read` | show, list |

A schedule belongs to the namespace of its owner; one of another namespace is not there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, NotFound
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.query import ListSchedules, ShowSchedule
from relaymesh.kernel.schedules.commands import RemoveSchedule, ScheduleStored, schedule_name
from relaymesh.kernel.schedules.schedule import ScheduleView, Work
from relaymesh.server.tasks import LARGE_BYTES, Tasks
from relaymesh.wire.content import check_sound
from relaymesh.wire.envelope import check_envelope
from relaymesh.wire.schedules import HoldSchedule, PutSchedule


class Schedules(Tasks):
    """The schedules of a node, for one credential."""

    def home(self, name: str, namespace: str | None = None) -> tuple[str, str]:
        """The namespace and the name of `nightly`, or of `team/nightly`. Refuses another namespace."""
        given, slash, plain = name.rpartition("/")
        home = given if slash else namespace or self._namespace
        plain = schedule_name(plain)
        if not self._principal.everywhere and home != self._principal.namespace:
            raise missing(plain)
        return home, plain

    async def put(self, request: PutSchedule) -> ScheduleStored:
        """Check it in another thread, then keep it. Its owner was stamped before."""
        request.budget = self._served.budget
        request.work = self._work(request.work, request.owner)
        make = partial(self._served.node.schedules.put_command, request)
        if request.work.size > LARGE_BYTES:
            async with self._account.long_work:
                command = await self._served.off_loop(make)
        else:
            command = await self._served.off_loop(make)
        return await self._served.session.put_schedule(command)

    def _work(self, work: Work, owner: str) -> Work:
        """With a recipient that the credential may send to, and a message in the name of the owner."""
        message: Any = work.message
        if message is None:
            return work
        to = self._principal.address(work.to, "recipient")
        plain = Envelope(
            "schedule",
            owner,
            message.content,
            message.encoding,
            message.type,
            message.priority,
            message.ttl_ms,
            key=message.key,
        )
        check_envelope(plain, self._served.session.payload_bytes_max)
        if plain.encoding != Encoding.JSON:
            raise InvalidEnvelope("the content of a schedule must be a JSON value, not bytes")
        check_sound(plain.content)
        return msgspec.structs.replace(work, to=to, message=msgspec.structs.replace(plain, id=""))

    async def found(self, name: str, namespace: str | None = None) -> ScheduleView | None:
        """With its work; None: there is none in this namespace."""
        try:
            query = ShowSchedule(*self.home(name, namespace))
        except NotFound:
            return None
        return await self._served.session.execute(query)

    async def all(self, query: ListSchedules) -> list[ScheduleView]:
        """Without their work."""
        if not self._principal.everywhere:
            if query.namespace not in (None, self._principal.namespace):
                return []
            query.namespace = self._principal.namespace
        return await self._served.session.execute(query)

    async def hold(self, name: str, *, paused: bool, namespace: str | None = None) -> ScheduleView:
        """Pause it, or resume it."""
        request = HoldSchedule(*self.home(name, namespace), paused, self._by)
        return await self._served.session.execute(request)

    async def remove(self, name: str, namespace: str | None = None) -> bool:
        home, plain = self.home(name, namespace)
        return await self._served.session.execute(RemoveSchedule(home, plain, self._by))


def missing(name: str) -> NotFound:
    return NotFound(
        f"there is no schedule {name!r} here",
        hint="GET /v1/schedules, or relaymesh schedule list, shows what there is",
    )
