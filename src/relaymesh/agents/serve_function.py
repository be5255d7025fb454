"""The worker program that calls a Python function: `python -m relaymesh.agents.serve_function
module:function`.

The function gets an `Assignment`. What it returns is the result. `Result`, `Continue`, `Retry`, `Reject`,
`Failed` and `Drop` mean what they mean in a handler; another exception is a failure that is tried again. A
coroutine function runs on the event loop and can be cancelled; a plain one runs in a thread. What it prints
goes to the log.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from relaymesh.agents.request import Request
from relaymesh.errors import MeshError
from relaymesh.kernel.contract import INVALID
from relaymesh.kernel.tasks.commands import Usage
from relaymesh.sdk.endings import Drop, Failed, Reject, Retry, default_code, text_of
from relaymesh.sdk.results import Continue, Result
from relaymesh.wire.content import encode_content
from relaymesh.wire.usage import dollars_of, usage_of

__all__ = ["Assignment", "main"]

CONFIG_ERROR = 78
REASON_LENGTH_MAX = 2_000
THREADS_MAX = 256
"""The most plain functions that run at once; the adapter's `parallel` limits them further."""


class Assignment:
    """One work, for the function that does it. The attributes have the names of a `Delivery`."""

    def __init__(self, id: str, request: Request, write: Callable[[dict[str, Any]], None]) -> None:
        self.id = request.message_id
        self.run = request.run
        self.content = request.content
        self.sender = request.sender
        self.type = request.type
        self.agent = request.agent
        self.task = request.task
        self.step = request.step
        self.attempt = request.attempt
        self.workspace = request.workspace
        self.time_limit_s = request.time_limit_s
        self.tokens_left = request.tokens_left
        self.cost_left_usd = request.cost_left_usd
        self.time_left_s = request.time_left_s
        self._form = id
        self._write = write

    def progress(self, text: str) -> None:
        """One line for a person, shown at the step while it runs."""
        self._write({"relaymesh": "progress", "id": self._form, "text": str(text)})

    def usage(self, *, cost_usd: float | None = None, tokens: int | None = None) -> None:
        """What this attempt has used so far: its total."""
        usage_of({"cost_usd": cost_usd, "tokens": tokens})  # raises for what is no amount
        self._write({"relaymesh": "usage", "id": self._form, "cost_usd": cost_usd, "tokens": tokens})


class _Program:
    """Reads works, calls the function for each, writes forms."""

    def __init__(self, function: Callable[[Assignment], Any], protocol: int) -> None:
        self._function = function
        self._protocol = protocol
        self._writing = threading.Lock()
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def write(self, form: dict[str, Any]) -> None:
        line = memoryview(msgspec.json.encode(form) + b"\n")
        with self._writing:
            while line:
                line = line[os.write(self._protocol, line) :]

    async def serve(self) -> None:
        """Run until the input ends and all running work is done."""
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(THREADS_MAX))
        reading = threading.Thread(target=_read, args=(loop, lines), daemon=True)
        reading.start()
        while (line := await lines.get()) is not None:
            given = msgspec.json.decode(line)
            if given["relaymesh"] == "work":
                self._start(given["id"], msgspec.convert(given["work"], Request))
            elif (task := self._under_way.get(given["id"])) is not None:
                task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)

    def _start(self, id: str, request: Request) -> None:
        task = asyncio.ensure_future(self._do(id, Assignment(id, request, self.write)))
        self._under_way[id] = task
        task.add_done_callback(lambda _: self._under_way.pop(id, None))

    async def _do(self, id: str, assignment: Assignment) -> None:
        try:
            if inspect.iscoroutinefunction(self._function):
                value = await self._function(assignment)
            else:
                value = await asyncio.to_thread(self._function, assignment)
                if inspect.isawaitable(value):
                    value = await value
            form = _done_or_invalid(value)
        except asyncio.CancelledError:
            if not inspect.iscoroutinefunction(self._function):
                return  # its thread goes on: only the end of this process stops it
            form = {"relaymesh": "retry", "reason": "it was cancelled"}
        except BaseException as error:  # also SystemExit: a work does not end its worker
            form = _failed(error)
        self.write({**form, "id": id})


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[bytes | None]) -> None:
    for line in sys.stdin.buffer:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    loop.call_soon_threadsafe(lines.put_nowait, None)


def _done_or_invalid(value: Any) -> dict[str, Any]:
    try:
        return _done(value)
    except (TypeError, MeshError) as error:
        return {"relaymesh": "failed", "reason": text_of(error)[:REASON_LENGTH_MAX], "code": INVALID}


def _done(value: Any) -> dict[str, Any]:
    if isinstance(value, Continue):
        return {"relaymesh": "continue", "steps": msgspec.Raw(value.document), **_spent(value.usage)}
    if isinstance(value, Result):
        return {"relaymesh": "done", "value": _json(value.value), **_spent(value.usage)}
    return {"relaymesh": "done", "value": _json(value)}


def _json(value: Any) -> msgspec.Raw:
    """Raises `InvalidEnvelope` for a value that cannot be written as JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("a result must be JSON: return text, numbers, lists, dicts or None, not bytes")
    return msgspec.Raw(encode_content(value)[0])


def _failed(error: BaseException) -> dict[str, Any]:
    reason = text_of(error)[:REASON_LENGTH_MAX] or type(error).__name__
    if isinstance(error, Retry):
        after, until = error.checked()
        form: dict[str, Any] = {"relaymesh": "retry", "reason": reason}
        if after is not None:
            form["after_s"] = after / 1000
        if until is not None:
            form["until"] = until / 1000
        return form
    if isinstance(error, Failed):
        return {"relaymesh": "failed", "reason": reason, "code": error.code, **_spent(error.usage)}
    if isinstance(error, Reject):
        return {"relaymesh": "failed", "reason": reason, "code": INVALID}
    if isinstance(error, Drop):
        return {"relaymesh": "drop", "reason": reason}
    traceback.print_exception(error)
    named = f"{type(error).__name__}: {reason}"[:REASON_LENGTH_MAX]
    return {"relaymesh": "retry", "reason": named, "code": default_code(error)}


def _spent(usage: Usage) -> dict[str, Any]:
    return {"cost_usd": dollars_of(usage.cost_micros), "tokens": usage.tokens}


def _imported(target: str) -> Callable[[Assignment], Any]:
    module, _, name = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} cannot be called")
    return found  # type: ignore[no-any-return]


def main(arguments: list[str]) -> int:
    """Serve one function until the input ends."""
    # What the function prints must not mix with the forms.
    protocol = os.dup(1)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.set_inheritable(protocol, False)
    try:
        function = _imported(arguments[0])
    except BaseException as error:  # whatever a module does when it is imported
        traceback.print_exception(error)
        return CONFIG_ERROR
    asyncio.run(_Program(function, protocol).serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
