"""A node in a process of its own, to be killed: `python -m tests.client.node_process DIRECTORY PORT`."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from relaymesh import MeshSettings
from relaymesh.journal import JournalSettings
from relaymesh.server.run import NodeServer
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings

START_S = 60.0


class NodeProcess:
    """Started again and again on the same directory and port."""

    def __init__(self, directory: Path, port: int = 0) -> None:
        self.directory = directory
        self.port = port or _free_port()
        self._log = directory.with_suffix(".log")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.client.node_process", str(directory), str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        assert self.url, self._log.read_text(encoding="utf-8")[-2000:]

    @property
    def token(self) -> str:
        return (self.directory / "server" / "local.token").read_text(encoding="utf-8").strip()

    def make_token(self) -> str:
        """One that a restart does not end."""
        from relaymesh.server.security.tokens import TokenFile

        return TokenFile(self.directory / "server").create(["admin"], namespace="*")[1]

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()

    def killed_and_started(self, pause_s: float = 0.0) -> NodeProcess:
        self.kill()
        time.sleep(pause_s)
        return NodeProcess(self.directory, self.port)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _serve(directory: Path, port: int) -> None:
    settings = ServerSettings(port=port, security=SecuritySettings(write_rate=0))
    mesh = MeshSettings(journal=JournalSettings(allocate_bytes=2_000_000))
    server = NodeServer(directory, mesh, settings, announce=lambda running: print(running.url, flush=True))
    await server.run()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
