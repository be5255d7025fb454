"""The output of one attempt: streamed to its log; the result is kept in memory up to its bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from relaymesh.agents.adapter import Event, Text, Used
from relaymesh.agents.environment import Environment
from relaymesh.agents.lines import Lines
from relaymesh.agents.replies import FORM_KEY, event_of, form_of, lines_as_text
from relaymesh.agents.run_folder import RunFolder

__all__ = ["Output", "Voice"]

LINE_BYTES_MAX = 65_536
"""The longest line of stderr that is looked at as one."""
SAID_BYTES_MAX = 1_000_000
"""How much of stderr becomes events; all of it is in the log file."""
EVENT_BYTES_MIN = 64
"""The least size that is counted for an event, so that a flood of empty lines is bounded too."""
LAST_LINE_MAX = 500


class Voice:
    """Lines for the log of an agent: forms become events, the rest becomes text, up to a bound."""

    def __init__(self, environment: Environment, emit: Callable[[Event], None], where: str) -> None:
        self._environment = environment
        self._emit = emit
        self._where = where
        self._room = SAID_BYTES_MAX
        self._lines = Lines(LINE_BYTES_MAX)
        self.last = ""
        """The last line that said something, without secrets: what an error usually ends with."""
        self.used = Used()

    def take(self, data: bytes) -> None:
        if self._room <= 0 and (last := self._lines.skip(data, FORM_KEY)) is not None:
            if last.strip():
                self._remember(last)
            return
        for line in self._lines.feed(data):
            self.line(line)

    def close(self) -> None:
        rest = self._lines.rest()
        if rest:
            self.line(rest)

    def line(self, line: bytes) -> None:
        try:
            form = form_of(line)
        except ValueError as error:
            self.say(str(error))
            form = None
        if form is not None and not form.ends:
            if form.relaymesh == "usage":
                self.used = form.used
            self._tell(event_of(form), len(line))
            return
        if line.strip():
            self.say(self._remember(line))

    def say(self, text: str, stream: str = "stderr") -> None:
        for event in lines_as_text(text.encode("utf-8", "replace"), stream):
            self._tell(event, len(event.text))

    def _remember(self, line: bytes) -> str:
        text = self._environment.blotted(line.decode("utf-8", "replace"))
        self.last = text.strip()[-LAST_LINE_MAX:]
        return text

    def _tell(self, event: Event, size: int) -> None:
        if isinstance(event, Used):
            self._emit(event)
            return
        if self._room <= 0:
            return
        self._room -= max(size, EVENT_BYTES_MIN)
        self._emit(event if self._room > 0 else Text(f"the rest is in {self._where}", "stderr"))


class Output:
    """Takes both streams of one attempt."""

    def __init__(
        self,
        folder: RunFolder,
        environment: Environment,
        result_bytes_max: int,
        emit: Callable[[Event], None],
    ) -> None:
        self.environment = environment
        self.too_large: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._folder = folder
        self._most = result_bytes_max
        self._result = bytearray()
        self._voice = Voice(environment, emit, str(folder.path / "stderr.log"))

    @property
    def result(self) -> bytes:
        return bytes(self._result)

    @property
    def said(self) -> str:
        return self._voice.last

    @property
    def used(self) -> Used:
        return self._voice.used

    def take(self, stream: str, data: bytes) -> None:
        if stream == "stderr":
            self._folder.stderr.write(data)
            self._voice.take(data)
            return
        self._folder.stdout.write(data)
        if len(self._result) + len(data) > self._most:
            self._result.clear()
            self._most = -1
            if not self.too_large.done():
                self.too_large.set_result(None)
            return
        self._result += data

    def say(self, text: str) -> None:
        self._voice.say(text)

    def close(self) -> None:
        self._voice.close()
