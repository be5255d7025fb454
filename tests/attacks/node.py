"""`relaymesh serve` in a process of its own, with tokens, and what can be seen of it from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from relaymesh.server.address import server_folder
from relaymesh.server.security.tokens import TokenFile
from tests.attacks.children import ROOT
from tests.attacks.sockets import WebSocket

STOP_S = 60.0
PIPELINED = 50
SAMPLE_S = 0.02
COUNT_S = 1.0
COUNT_FROM_BYTES = 402_653_184
"""Below this the node is not asked what it counts: nothing could be judged, and asking costs it time."""
COUNTED = ("bytes", "deadLetterBytes", "deadBytes", "letterBytes")
"""Fields of a mailbox's statistics that are bytes of live mail."""


class Node:
    """One run of `relaymesh serve` on an empty directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._tokens = TokenFile(server_folder(directory))
        self._admin = self._tokens.create(["admin"], namespace="*")[1]
        self._ids: dict[str, str] = {}
        self._log = directory.with_suffix(".log").open("a+b")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "relaymesh.cli.main",
                "serve",
                "--json",
                "--port",
                "0",
                "--dir",
                directory,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])},
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        line = self._out.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the node did not start:\n{self._log.read().decode()[-4000:]}")
        self.url: str = json.loads(line)["url"]
        self.port = int(self.url.rpartition(":")[2])

    def token(self, *scopes: str) -> str:
        """A token that the running server knows within a second."""
        made, text = self._tokens.create(scopes)
        self._ids[text] = made.id
        return text

    def open_mailboxes(self, count: int) -> None:
        """Mailboxes of agents that are not there."""
        with WebSocket(self.port, self._admin) as ws:
            for number in range(count):
                arguments = {"mailbox": f"default/box{number}"}
                ws.tell({"op": "call", "ref": number, "name": "open_mailbox", "arguments": arguments})
                if number >= PIPELINED:
                    ws.answers(1)
            ws.answers(min(count, PIPELINED))

    def ask(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float = 30.0
    ) -> tuple[int, Any]:
        """An operator's request."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            headers = {"Authorization": f"Bearer {self._admin}"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        """Resident memory of the process; 0 when it has ended."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0
        lines = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(lines[0].split()[1]) * 1024 if lines else 0

    def counted_bytes(self) -> int:
        """Live mail, as the node itself counts it."""
        _, stats = self.ask("GET", "/v1/stats")
        return sum(box.get(name, 0) for box in stats["mailboxes"].values() for name in COUNTED)

    def connections_opened(self, token: str) -> int:
        """WebSockets that were opened with a token, by the audit log: one more than reconnects."""
        opened: Counter[str] = Counter()
        for path in sorted(server_folder(self.directory).glob("audit*.jsonl")):
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    if '"ws.opened"' in line:
                        opened[json.loads(line)["token"]] += 1
        return opened[self._ids[token]]

    def stop(self) -> None:
        if self.runs:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.runs:
            self._process.kill()
            self._process.wait()
        self._out.close()
        self._log.close()


class Watch:
    """Samples the node's memory all the time, and what it counts while the difference could matter."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._stopping = threading.Event()
        self._resident: list[tuple[float, int]] = []
        self._counted: list[tuple[float, int]] = [(time.monotonic(), 0)]
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._sample, self._count)]

    def _sample(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            self._resident.append((time.monotonic(), self._node.resident_bytes()))

    def _count(self) -> None:
        while not self._stopping.wait(COUNT_S):
            if self._resident and self._resident[-1][1] > COUNT_FROM_BYTES:
                try:
                    self._counted.append((time.monotonic(), self._node.counted_bytes()))
                except (OSError, HTTPException, ValueError, KeyError):
                    continue  # what it counted last is compared with

    @property
    def peak_bytes(self) -> int:
        return max((size for _, size in self._resident), default=0)

    @property
    def excess_bytes(self) -> int:
        """The most that was resident beside counted mail. Of the counts before and after, the larger."""
        worst, at = 0, 0
        for when, size in self._resident:
            while at + 1 < len(self._counted) and self._counted[at + 1][0] < when:
                at += 1
            counted = max(count for _, count in self._counted[at : at + 2])
            worst = max(worst, size - counted)
        return worst

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
