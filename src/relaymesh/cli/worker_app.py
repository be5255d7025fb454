"""One process of `relaymesh worker run`: it opens a mesh, lets the app register handlers, and serves them."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.cli.failure import failure_of
from relaymesh.cli.output import Output, library_log
from relaymesh.errors import InvalidValue
from relaymesh.sdk.async_mesh import AsyncMesh
from relaymesh.sdk.mesh import Mesh

REFUSED = b"!"
"""It ended because of what it was told to serve, and not by a crash."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What the parent tells a process, as JSON in its one argument. The token is in its environment."""

    target: str
    url: str | None
    directory: str | None
    graceful_s: float
    json: bool = False
    ready: int = -1
    """A pipe: the process writes its files there when it serves, or `REFUSED` if it cannot."""
    alive: int = -1
    """A pipe that ends when the parent has ended."""


def main(argv: Sequence[str]) -> int:
    """Serve until a signal. Returns the exit code."""
    order = msgspec.json.decode(argv[0], type=Order)
    threading.Thread(target=_stop_with_parent, args=(order.alive,), daemon=True).start()
    output = Output(json=order.json)
    try:
        with library_log(output):
            found = load(order.target)
            if _wants_async(found):
                asyncio.run(_serve_async(found, order))
            else:
                _serve(found, order)
    except Exception as error:
        _say_refused(order)
        failure = failure_of(error)
        if failure is None:
            raise
        output.fail(failure)
        return failure.exit
    return 0


def load(target: str) -> Callable[[Any], Any]:
    """The function that `module:name` names. What its module raises is raised as it is."""
    module, _, name = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise  # the module is there, and lacks what it imports
        hint = "run it where the module is, or set PYTHONPATH"
        raise InvalidValue(f"there is no module {error.name!r}", hint=hint) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidValue(f"{target} is not there: {module} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        hint = "write `def app(mesh):` with handlers in it"
        raise InvalidValue(f"{target} is no function of a mesh, but {type(found).__name__}", hint=hint)
    return found  # type: ignore[no-any-return]


def _wants_async(found: Callable[[Any], Any]) -> bool:
    if inspect.iscoroutinefunction(found):
        return True
    try:
        first = next(iter(inspect.signature(found, eval_str=True).parameters.values()), None)
    except (TypeError, ValueError, NameError):
        return False
    return first is not None and first.annotation is AsyncMesh


def _serve(found: Callable[[Any], Any], order: Order) -> None:
    with Mesh(order.url or order.directory) as mesh:
        found(mesh)
        _say_ready(order)
        mesh.run(timeout=order.graceful_s)


async def _serve_async(found: Callable[[Any], Any], order: Order) -> None:
    async with AsyncMesh(order.url or order.directory) as mesh:
        registered = found(mesh)
        if inspect.isawaitable(registered):
            await registered
        _say_ready(order)
        await mesh.run(timeout=order.graceful_s)


def _say_ready(order: Order) -> None:
    os.write(order.ready, msgspec.json.encode(own_files()))
    os.close(order.ready)


def _say_refused(order: Order) -> None:
    try:
        os.write(order.ready, REFUSED)
    except OSError:  # it has served, and the pipe is closed
        pass


def own_files() -> list[str]:
    """Files of loaded modules below the current directory, without what is installed there."""
    here = Path.cwd()
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    paths = [Path(file).absolute() for file in files if isinstance(file, str)]
    own = [path for path in paths if path.is_relative_to(here) and "site-packages" not in path.parts]
    return sorted({str(path) for path in own})[:1_000]


def _stop_with_parent(alive: int) -> None:
    """No process goes on when its parent was killed."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
