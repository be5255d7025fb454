"""Runs cases against an adapter, and looks at what they leave."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from relaymesh.agents.adapter import LOG_LINE_MAX, Adapter, Event, Outcome, Text, Work
from relaymesh.errors import InvalidValue
from relaymesh.testing.adapters.cases import Case, Faults, Seen, cases, refusal
from relaymesh.testing.adapters.stage import Stage
from relaymesh.testing.adapters.witness import Witness, folder_mib

__all__ = ["Factory", "Verdict", "factory_of", "judged", "verdict_of"]

Factory = Callable[[Stage], Adapter]

MEMORY_MIB_MAX = 48.0
"""How much more memory than before a case may take here, whatever the agent writes."""
EVENTS_KEPT = 10_000
SETTLE_S = 0.5
"""Processes that were killed may take so long to leave the process table."""
CLOSE_S = 30.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the suite says about one case."""

    case: str
    verdict: Literal["ok", "refused", "failed"]
    seconds: float
    faults: Faults = []
    reason: str = ""
    """Why the adapter refused to run the agent."""


def factory_of(name: str) -> Factory:
    """What `module:name` names: an adapter for all cases, or a function or class that makes one."""
    module, colon, attribute = name.partition(":")
    if not module or not colon or not attribute:
        raise InvalidValue(f"{name!r:.80} names no adapter: write module:Adapter")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidValue(f"{name!r:.80} cannot be loaded: {error}") from None
    if hasattr(found, "run") and not isinstance(found, type):
        return lambda _: found
    if callable(found):
        return found  # type: ignore[no-any-return]
    raise InvalidValue(f"{name!r:.80} is no adapter and makes none")


def judged(make: Factory, size: int, only: tuple[str, ...] = ()) -> Iterator[Verdict]:
    """One verdict a case, as they come."""
    for case in cases(size):
        if not only or case.name in only:
            yield verdict_of(make, case)


def verdict_of(make: Factory, case: Case) -> Verdict:
    """Run one case on a loop of its own."""
    return asyncio.run(_verdict(make, case))


async def _verdict(make: Factory, case: Case) -> Verdict:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="relaymesh-adapter-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        stage = Stage(folder=folder / "stage", processes_max=case.processes_max)
        stage.folder.mkdir()
        try:
            adapter = make(stage)
        except Exception as error:  # the adapter is a stranger's
            return _failed(case, started, f"it could not be made: {type(error).__name__}: {error}")
        witness = Witness(folder)
        try:
            seen, faults = await _played(adapter, case, witness, stage)
        finally:
            with contextlib.suppress(OSError):
                witness.kill_all()
    seconds = round(time.monotonic() - started, 2)
    if faults:
        return Verdict(case=case.name, verdict="failed", seconds=seconds, faults=faults)
    refused = refusal(seen) if seen is not None else ""
    return Verdict(case=case.name, verdict="refused" if refused else "ok", seconds=seconds, reason=refused)


def _failed(case: Case, started: float, fault: str) -> Verdict:
    seconds = round(time.monotonic() - started, 2)
    return Verdict(case=case.name, verdict="failed", seconds=seconds, faults=[fault])


async def _played(adapter: Adapter, case: Case, witness: Witness, stage: Stage) -> tuple[Seen | None, Faults]:
    listener = _Listener()
    before = asyncio.all_tasks()
    run = asyncio.ensure_future(adapter.run(_work(case, witness), listener.hear))
    started = time.monotonic()
    interfering = asyncio.ensure_future(_interfere(case, witness, run))
    outcome: Outcome | None = None
    faults: Faults = []
    await asyncio.wait({run}, timeout=case.within_s)
    interfering.cancel()
    if not run.done():
        witness.kill_all()
        run.cancel()
        await asyncio.wait({run}, timeout=CLOSE_S)
        return None, [f"run did not end within {case.within_s:g} s"]
    seconds = time.monotonic() - started
    if not run.cancelled():
        error = run.exception()
        if error is not None:
            return None, [f"run raised {type(error).__name__}: {error}", *await _closed(adapter)]
        outcome = run.result()
    faults += await _left_by_run(witness, adapter)
    faults += listener.faults
    faults += await _closed(adapter)
    faults += await _left_at_all(witness, before)
    seen = Seen(
        outcome=outcome,
        events=listener.events,
        seconds=seconds,
        processes=len(witness.noted()),
        arguments=witness.arguments(),
        log_mib=folder_mib(stage.folder),
    )
    return seen, case.judge(seen) + faults


def _work(case: Case, witness: Witness) -> Work:
    return Work(
        run=f"conformance-{uuid.uuid4().hex}",
        agent="conformance",
        message_id=str(uuid.uuid4()),
        type="task_assign",
        sender="tester",
        content=msgspec.json.encode({**case.content, "ledger": str(witness.ledger)}),
        task="t1",
        step="s1",
        time_limit_s=case.time_limit_s,
        silence_limit_s=case.silence_limit_s,
    )


async def _interfere(case: Case, witness: Witness, run: asyncio.Future[Outcome]) -> None:
    """Once the agent is under way: cancel the run, or kill the agent as a stranger would."""
    if case.interference is None:
        return
    while not witness.noted():  # noqa: ASYNC110 - a file tells it
        await asyncio.sleep(0.02)
    if case.interference == "cancel":
        run.cancel()
    else:
        os.kill(witness.noted()[0][0], signal.SIGKILL)


async def _left_by_run(witness: Witness, adapter: Adapter) -> Faults:
    """What must be over when `run` returns. A process that serves many works may stay until `close`."""
    keeps = getattr(adapter, "keeps_process", False)
    alive = [] if keeps else await _settled(witness.alive)
    grown = witness.grown_mib()
    faults = [f"processes of the agent still run: {alive}"] if alive else []
    if grown > MEMORY_MIB_MAX:
        faults.append(f"the memory of this process grew by {grown:.0f} MiB")
    return faults


async def _left_at_all(witness: Witness, before: set[asyncio.Task[Any]]) -> Faults:
    """What must be over when `close` returns."""
    faults = []
    alive = await _settled(witness.alive)
    if alive:
        faults.append(f"processes of the agent still run after close: {alive}")
    zombies = await _settled(witness.zombies)
    if zombies:
        faults.append(f"processes that were not reaped: {zombies}")
    tasks = await _settled(lambda: [task for task in asyncio.all_tasks() - before if not task.done()])
    if tasks:
        faults.append(f"tasks that still run: {len(tasks)}")
    opened = await _settled(lambda: [None] * max(0, witness.opened_files()))
    if opened:
        faults.append(f"files that stay open: {len(opened)}")
    return faults


async def _closed(adapter: Adapter) -> Faults:
    try:
        await asyncio.wait_for(adapter.close(), CLOSE_S)
    except TimeoutError:
        return [f"close did not end within {CLOSE_S:g} s"]
    except Exception as error:  # the adapter is a stranger's
        return [f"close raised {type(error).__name__}: {error}"]
    return []


async def _settled(look: Callable[[], list[Any]]) -> list[Any]:
    """What a look finds in the end: what is just going gets a moment to go."""
    until = time.monotonic() + SETTLE_S
    while (found := look()) and time.monotonic() < until:  # noqa: ASYNC110 - so does this
        await asyncio.sleep(0.02)
    return found


class _Listener:
    """Takes events. It keeps some, and finds fault with those that are too long."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.faults: Faults = []

    def hear(self, event: Event) -> None:
        if len(self.events) < EVENTS_KEPT:
            self.events.append(event)
        if isinstance(event, Text) and len(event.text.encode("utf-8", "replace")) > 3 * LOG_LINE_MAX:
            self.faults = [f"a Text event of {len(event.text)} characters: at most {LOG_LINE_MAX} bytes"]
