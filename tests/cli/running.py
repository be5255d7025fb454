"""Running commands as a person, a script or a pipe would."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from relaymesh.cli.main import main
from relaymesh.sdk.mesh import Mesh
from tests.waiting import until


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """`--json`: one object per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def row(self) -> dict[str, Any]:
        [row] = self.rows
        return row

    @property
    def error(self) -> dict[str, Any]:
        """`--json`: the one object on stderr, notes left aside."""
        said: list[dict[str, Any]] = [json.loads(line) for line in self.err.splitlines()]
        [error] = [each for each in said if "note" not in each]
        return error


class Cli:
    """Commands on one directory, in this process."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path = path
        self._capsys = capsys

    def __call__(self, *words: str) -> Ran:
        self._capsys.readouterr()
        code = main([*words, "--dir", str(self.path)])
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Ran(code, out, err)

    def json(self, *words: str) -> Ran:
        return self(*words, "--json")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "relaymesh.cli.main", *words]


def environment(**changes: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RELAYMESH_") and k != "NO_COLOR"}
    return kept | changes


def piped(*words: str, stdin: str = "", **changes: str) -> Ran:
    """The command in a process of its own, without a terminal."""
    ran = subprocess.run(
        command(*words),
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(**changes),
        timeout=60,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def on_terminal(*words: str, answer: str = "", columns: int = 80, **changes: str) -> tuple[int, str]:
    """The command on a terminal of its own: its exit code, and everything that was seen."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = environment(TERM="xterm", **changes)
    settings.pop("COLUMNS", None)
    with subprocess.Popen(
        command(*words), stdin=theirs, stdout=theirs, stderr=theirs, env=settings, close_fds=True
    ) as process:
        os.close(theirs)
        os.write(ours, answer.encode())
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not part:
                break
            seen += part
    os.close(ours)
    return process.returncode, seen.decode().replace("\r\n", "\n")


def fill(path: Path) -> None:
    """A mesh with some of everything: pending, delayed, two subscriptions, three dead letters."""
    with Mesh(path) as mesh:
        until(lambda: list(path.glob("reports/*.json")))  # of a mesh without dead letters
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        mesh.agent("tester")
        for number, code in enumerate(("bad_patch", "bad_patch", "timeout")):
            planner.send("coder", {"number": number}, id=f"dead-{number}")
            delivery = coder.receive(timeout=5)
            try:
                raise ValueError(f"no such line {number}")
            except ValueError as error:
                delivery.nack(error, code=code, retryable=False)
        planner.send("coder", {"do": "bump version"}, id="bump-1", type="task_assign", task="release")
        planner.send("coder", "stand-up", delay_ms=3_600_000)
        mesh.subscribe("order.created", "billing")
        mesh.subscribe("order.*", "audit")
        mesh.publish("order.created", {"order": 42}, id="order-42")
