"""A Python function as an agent: a worker process that imports it and calls it for each work."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.agents.command import Command, Limits
from relaymesh.agents.worker import Worker
from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import shown

__all__ = ["PythonFunction"]

_TARGET = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


class PythonFunction(Worker):
    """The adapter of `module:function`. What the function may return and raise is in `serve_function`.

    `command` has environment, secrets and user; its `argv`, if given, names the Python to use instead of this
    one.
    """

    def __init__(
        self,
        target: Any,
        limits: Limits | None = None,
        *,
        runs: Path,
        mark: str,
        directory: Path,
        command: Command | None = None,
        parallel: int = 1,
        **pauses: Any,
    ) -> None:
        if not isinstance(target, str) or not _TARGET.fullmatch(target):
            raise InvalidSettings(f"{shown(target)} names no function: write module:function")
        python = command or Command(argv=(sys.executable,))
        served = (*python.argv, "-m", "relaymesh.agents.serve_function", target)
        super().__init__(
            msgspec.structs.replace(python, argv=served),
            limits,
            runs=runs,
            mark=mark,
            directory=directory,
            parallel=parallel,
            **pauses,
        )
