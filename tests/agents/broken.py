"""Adapters that are broken on purpose, each in one way that a case of the suite is meant to catch."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable

import msgspec

from relaymesh.agents.adapter import LOG_LINE_MAX, Done, Event, Failure, Outcome, Progress, Text, Work
from relaymesh.agents.command import Command, Limits
from relaymesh.agents.request import request_of
from relaymesh.agents.script import Script
from relaymesh.testing.adapters import Stage

Emit = Callable[[Event], None]
replace = msgspec.structs.replace


class Broken:
    """A sound adapter, of which a subclass breaks one thing."""

    unbounded = False

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        bound = None if self.unbounded else stage.processes_max
        self.sound = Script(
            Command(argv=stage.script), Limits(grace_s=stage.grace_s, processes_max=bound), runs=stage.folder
        )

    async def run(self, work: Work, emit: Emit) -> Outcome:
        return self.changed(await self.sound.run(work, emit), work)

    def changed(self, outcome: Outcome, work: Work) -> Outcome:
        return outcome

    async def close(self) -> None:
        await self.sound.close()


class SwallowsFailures(Broken):
    def changed(self, outcome: Outcome, work: Work) -> Outcome:
        return Done() if isinstance(outcome, Failure) and not outcome.final else outcome


class TriesForEver(Broken):
    def changed(self, outcome: Outcome, work: Work) -> Outcome:
        return replace(outcome, final=False) if isinstance(outcome, Failure) else outcome


class Raises(Broken):
    def changed(self, outcome: Outcome, work: Work) -> Outcome:
        if isinstance(outcome, Failure):
            raise RuntimeError(outcome.reason)
        return outcome


class CallsKillsFailures(Broken):
    def changed(self, outcome: Outcome, work: Work) -> Outcome:
        return replace(outcome, abandoned=False) if isinstance(outcome, Failure) else outcome


class Mangles(Broken):
    def changed(self, outcome: Outcome, work: Work) -> Outcome:
        if isinstance(outcome, Done):
            text = json.dumps(json.loads(outcome.value), ensure_ascii=False)
            return Done(text.encode("ascii", "replace"))
        return outcome


class TakesAnything(Broken):
    """What cannot be read is text, somehow."""

    def changed(self, outcome: Outcome, work: Work) -> Outcome:
        (log,) = self.stage.folder.glob("*/stdout.log")
        text = log.read_bytes().decode("utf-8", "replace")
        return Done(json.dumps(text).encode()) if isinstance(outcome, Failure) else outcome


class ForgetsLimits(Broken):
    async def run(self, work: Work, emit: Emit) -> Outcome:
        return await self.sound.run(replace(work, time_limit_s=None, silence_limit_s=None), emit)


class TakesTimeForSilence(Broken):
    async def run(self, work: Work, emit: Emit) -> Outcome:
        return await self.sound.run(replace(work, time_limit_s=work.silence_limit_s), emit)


class SwallowsCancellation(Broken):
    async def run(self, work: Work, emit: Emit) -> Outcome:
        try:
            return await self.sound.run(work, emit)
        except asyncio.CancelledError:
            return Failure("abandoned", "it was cancelled", abandoned=True)


class SaysNothing(Broken):
    async def run(self, work: Work, emit: Emit) -> Outcome:
        return await self.sound.run(work, lambda event: None if isinstance(event, Progress) else emit(event))


class SaysTooMuchAtOnce(Broken):
    async def run(self, work: Work, emit: Emit) -> Outcome:
        emit(Text("x" * LOG_LINE_MAX * 4))
        return await self.sound.run(work, emit)


class BoundsNothing(Broken):
    unbounded = True


class LeavesATask(Broken):
    async def run(self, work: Work, emit: Emit) -> Outcome:
        self.task = asyncio.ensure_future(asyncio.sleep(60))
        return await self.sound.run(work, emit)


class LeavesAFile(Broken):
    async def run(self, work: Work, emit: Emit) -> Outcome:
        os.open(os.devnull, os.O_RDONLY)
        return await self.sound.run(work, emit)


class Naive:
    """As it is written in ten minutes: one process, and `communicate`."""

    options: tuple[str, ...] = ()
    kills = True

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def run(self, work: Work, emit: Emit) -> Outcome:
        try:
            output = await asyncio.to_thread(self._communicate, work)
        except subprocess.TimeoutExpired:
            return Failure("timeout", "it took too long")
        if len(output) > 1_000_000:
            return Failure("invalid", "too much output", final=True)
        try:
            return Done(json.dumps(json.loads(output)["value"]).encode())
        except ValueError:
            return Failure("invalid", "no JSON", final=True)

    def _communicate(self, work: Work) -> bytes:
        pipe = subprocess.PIPE
        with subprocess.Popen(self.arguments(work), stdin=pipe, stdout=pipe, stderr=pipe) as process:
            try:
                request = request_of(work, None) + b"\n"
                return process.communicate(request, timeout=work.time_limit_s)[0]
            except subprocess.TimeoutExpired:
                (process.kill if self.kills else process.terminate)()
                raise

    def arguments(self, work: Work) -> list[str]:
        return list(self.stage.script)

    async def close(self) -> None:
        return None


class OnlyAsks(Naive):
    kills = False


class PassesContentAsArgument(Naive):
    def arguments(self, work: Work) -> list[str]:
        return [*self.stage.script, work.content.decode()]
