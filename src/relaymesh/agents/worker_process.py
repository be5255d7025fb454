"""One process of a worker agent: works go in as lines, forms come out.

It reads `{"relaymesh": "work", "id": …, "work": {…}}` and `{"relaymesh": "cancel", "id": …}`, one a line. It
writes forms (`replies`), each with the `id` of its work. Other lines on stdout go into the log. A process
that ends, or that writes a line over the limit, ends the works that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.agents.adapter import Done, Event, Failure, Grown, Outcome, Text, Used
from relaymesh.agents.child import Child, to_the_end
from relaymesh.agents.command import Command, Limits
from relaymesh.agents.environment import Environment
from relaymesh.agents.lines import Lines
from relaymesh.agents.output import Voice
from relaymesh.agents.replies import Form, event_of, form_of, outcome_of_exit, outcome_of_form
from relaymesh.agents.run_folder import RunFolder
from relaymesh.kernel.contract import INVALID, OTHER

__all__ = ["Doing", "WorkerProcess"]

LINE_ROOM = 65_536
"""The most bytes of a line in addition to the value of its result."""


class Doing:
    """One work that the process has."""

    def __init__(self, id: str, emit: Callable[[Event], None]) -> None:
        self.id = id
        self.emit = emit
        self.used = Used()
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def end(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class WorkerProcess:
    """A started process and its open works. Call `end` at the end."""

    def __init__(self, command: Command, limits: Limits, *, runs: Path, mark: str, directory: Path) -> None:
        self.limits = limits
        self.doing: dict[str, Doing] = {}
        self.answered = 0
        """Works that it has ended itself."""
        self.environment = Environment.of(command, mark)
        self._folder = RunFolder(runs, mark, limits.log_bytes_max, self.environment)
        self._voice = Voice(self.environment, self._say, str(self._folder.path / "stderr.log"))
        self._lines = Lines(limits.result_bytes_max + LINE_ROOM)
        self._garbage = False
        """It wrote lines that are no forms: harmless, unless it ends without an answer."""
        self._blamed: dict[str, Failure] = {}
        try:
            self.child = Child.started(
                command, limits, self.environment, mark=mark, directory=directory, took=self._take
            )
        except BaseException:
            self._folder.__exit__(None, None, None)
            raise
        self._asked_to_end = asyncio.Event()
        self.gone = asyncio.ensure_future(self._live())
        """Done when the process and all that belongs to it have ended."""

    @property
    def ending(self) -> bool:
        """This side is ending the process."""
        return self._asked_to_end.is_set()

    async def admit(self) -> None:
        await self.child.admit()
        if self.child.note:
            self._voice.say(self.child.note)

    def give(self, id: str, request: bytes, emit: Callable[[Event], None]) -> Doing:
        """Send it one work."""
        doing = self.doing[id] = Doing(id, emit)
        line = {"relaymesh": "work", "id": id, "work": msgspec.Raw(request)}
        self.child.feed.write(msgspec.json.encode(line) + b"\n")
        return doing

    def cancel(self, id: str) -> None:
        """Ask it to stop one work."""
        self.child.feed.write(msgspec.json.encode({"relaymesh": "cancel", "id": id}) + b"\n")

    def forget(self, id: str) -> None:
        """Ignore everything that it still writes about this work."""
        self.doing.pop(id, None)

    def finish(self) -> None:
        """Close its input: it ends when its open works are done."""
        self.child.feed.finish()

    async def end(self, blamed: dict[str, Failure] | None = None) -> None:
        """End the process. The works in `blamed` end with their outcome, the others as abandoned."""
        self._blamed.update(blamed or {})
        self._asked_to_end.set()
        await to_the_end(_waited(self.gone))

    async def _live(self) -> None:
        asked = asyncio.ensure_future(self._asked_to_end.wait())
        ends: set[asyncio.Future[Any]] = {asked, self.child.exited}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        by_us = not self.child.exited.done()
        try:
            code, swept = await self.child.end(self.limits.grace_s)
            if swept.left:
                self._voice.say(f"processes that could not be ended: {', '.join(map(str, swept.left))}")
            self._stdout_line(self._lines.rest())
            self._voice.close()
        finally:
            self._folder.__exit__(None, None, None)
        for doing in list(self.doing.values()):
            doing.end(self._blamed.get(doing.id) or self._left_by(code, by_us, doing))

    def _left_by(self, code: int, by_us: bool, doing: Doing) -> Outcome:
        """The outcome of a work whose process ended before it answered."""
        if by_us or self._asked_to_end.is_set():
            reason = "its worker was ended for another reason than this work"
            return Failure("abandoned", reason, abandoned=True, used=doing.used)
        if code == 0 and self._garbage:
            reason = "its worker wrote no form that could be read, and ended"
            return Failure(INVALID, reason, final=True, used=doing.used)
        if code == 0:
            return Failure(OTHER, "its worker ended without an answer", used=doing.used)
        return outcome_of_exit(code, b"", self._voice.last, doing.used)

    # -- what it writes

    def _take(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._folder.stderr.write(data)
            self._voice.take(data)
            return
        cut = self._lines.cut
        for line in self._lines.feed(data):
            if self._lines.cut > cut:
                self._too_long(line)
                return
            self._stdout_line(line)

    def _stdout_line(self, line: bytes) -> None:
        try:
            form = form_of(line)
        except ValueError as error:
            self._wrong(line, str(error))
            return
        if form is not None:
            self._form(form)
        elif line.strip():
            self._garbage = True
            self._folder.stdout.write(line + b"\n")
            self._voice.say(self.environment.blotted(line[:LINE_ROOM].decode("utf-8", "replace")), "stdout")

    def _form(self, form: Form) -> None:
        doing = self._meant(form)
        if doing is None:
            self._voice.say(f"a form about {form.id!r:.80}, which it was not given or has ended", "stdout")
        elif not form.ends:
            event = event_of(form)
            if isinstance(event, Used):
                doing.used = event
            doing.emit(event)
        else:
            self.child.catch_up()
            self.answered += 1
            doing.end(self._checked(outcome_of_form(form), doing))

    def _meant(self, form: Form) -> Doing | None:
        if form.id is None and len(self.doing) == 1:
            return next(iter(self.doing.values()))
        doing = self.doing.get(form.id or "")
        return None if doing is None or doing.outcome.done() else doing

    def _checked(self, outcome: Outcome, doing: Doing) -> Outcome:
        data = (
            outcome.value
            if isinstance(outcome, Done)
            else outcome.steps
            if isinstance(outcome, Grown)
            else b""
        )
        limit = self.limits.result_bytes_max
        if len(data) > limit:
            return Failure(INVALID, f"the output has more than {limit} bytes", final=True, used=doing.used)
        named = self.environment.secret_in(data)
        if named is not None:
            reason = f"the output holds the value of the secret {named}"
            return Failure(INVALID, reason, final=True, used=doing.used)
        if isinstance(outcome, Failure):
            outcome = msgspec.structs.replace(outcome, reason=self.environment.blotted(outcome.reason))
        return outcome if outcome.used != Used() else msgspec.structs.replace(outcome, used=doing.used)

    def _wrong(self, line: bytes, error: str) -> None:
        """A form cannot be read: the works that it names end with a failure."""
        for doing in self._named_in(line):
            doing.end(Failure(INVALID, error[:2_000], final=True, used=doing.used))

    def _too_long(self, line: bytes) -> None:
        """A line is over the limit: the following lines cannot be understood, so the process is ended."""
        limit = self.limits.result_bytes_max
        for doing in self._named_in(line):
            reason = f"the output has more than {limit} bytes"
            self._blamed[doing.id] = Failure(INVALID, reason, final=True, used=doing.used)
        self._asked_to_end.set()

    def _named_in(self, line: bytes) -> list[Doing]:
        """The works whose id is at the beginning of an unreadable line; all works if there is no such id."""
        start = line[:LINE_ROOM]
        named = [doing for doing in self.doing.values() if doing.id.encode() in start]
        return named or list(self.doing.values())

    def _say(self, event: Event) -> None:
        """Other output belongs to the only open work; with several open works it is not known to which."""
        if len(self.doing) == 1 and isinstance(event, Text):
            next(iter(self.doing.values())).emit(event)


async def _waited(future: asyncio.Future[None]) -> None:
    await asyncio.wait({future})
    future.result()
