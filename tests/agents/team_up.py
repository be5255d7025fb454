"""`relaymesh up` in a process of its own, on a folder of a test: started, heard, and ended by its number."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RELAYMESH = [sys.executable, "-m", "relaymesh.cli.main"]
PATIENCE_S = 90.0


def environment() -> dict[str, str]:
    """Without settings of this machine."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RELAYMESH")}


def command(folder: Path, *words: str, timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """One command in the folder."""
    return subprocess.run(
        [*RELAYMESH, *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def rows(folder: Path, *words: str) -> list[dict[str, Any]]:
    """What a command prints with `--json`. It must succeed."""
    done = command(folder, *words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Up:
    """One run of `relaymesh up --json`."""

    def __init__(self, folder: Path, *words: str, **variables: str) -> None:
        self.folder = folder
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._errors = (folder / "up.err").open("a+b")
        self.process = subprocess.Popen(
            [*RELAYMESH, "up", "--json", *words],
            cwd=folder,
            env=environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()

    def of(self, event: str) -> list[dict[str, Any]]:
        return [each for each in list(self.events) if each["event"] == event]

    def wait_for(self, event: str, count: int = 1, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The `count`th event of this name."""
        with self._changed:
            found = self._changed.wait_for(lambda: len(self.of(event)) >= count, within_s)
        assert found, f"no {event} number {count}: {self.told()}"
        return self.of(event)[count - 1]

    def told(self) -> str:
        self._errors.seek(0)
        return json.dumps(self.events[-30:], indent=1) + self._errors.read().decode()

    def keeper(self) -> dict[str, Any]:
        """What the keeper says of itself and its two processes."""
        path = self.folder / ".relaymesh" / "supervisor" / "keeper.json"
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        os.kill(self.process.pid, number)
        code = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reading.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


@contextmanager
def team_up(folder: Path, *words: str, ready: bool = True, **variables: str) -> Iterator[Up]:
    """A team that is at work, and is ended whatever happens."""
    up = Up(folder, *words, **variables)
    try:
        if ready:
            up.wait_for("ready")
        yield up
    finally:
        up.close()
