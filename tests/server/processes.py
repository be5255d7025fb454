"""Servers in processes of their own: started, spoken to, stopped by their own number."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx

CHILD = Path(__file__).with_name("serve_child.py")
PATIENCE_S = 120.0


class Process:
    """One run of `relaymesh serve`."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self._log = (directory.parent / f"{directory.name}.err").open("a+b")
        self.popen = subprocess.Popen(
            [sys.executable, str(CHILD), "serve", "--json", "--port", "0", "--dir", str(directory), *options],
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "FAIL_FILE": str(directory / "fail")},
            start_new_session=True,
        )
        assert self.popen.stdout is not None
        self._out: IO[bytes] = self.popen.stdout
        line = self._out.readline()
        assert line, self.said
        self.announced: dict[str, Any] = json.loads(line)
        self.url: str = self.announced["url"]
        self.client = httpx.Client(
            base_url=self.url,
            headers={"authorization": f"Bearer {Path(self.announced['token_file']).read_text().strip()}"},
            timeout=PATIENCE_S,
        )

    @property
    def said(self) -> str:
        """Everything on stderr so far."""
        self._log.seek(0)
        return self._log.read().decode()

    def post(self, path: str, body: Any = None) -> Any:
        answer = self.client.post(path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def signal(self, number: int) -> None:
        os.kill(self.popen.pid, number)

    def wait(self) -> int:
        return self.popen.wait(PATIENCE_S)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        self.client.close()
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait(PATIENCE_S)
        self._out.close()
        self._log.close()


@contextmanager
def running(directory: Path, *options: str) -> Iterator[Process]:
    process = Process(directory, *options)
    try:
        yield process
    finally:
        process.close()
