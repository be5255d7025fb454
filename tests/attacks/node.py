"""`relaymesh serve` in a process of its own, with tokens, and what can be seen of it from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from relaymesh.server.address import server_folder
from relaymesh.server.security.tokens import TokenFile
from tests.attacks.catalogue import Attack
from tests.attacks.children import ROOT
from tests.attacks.pace import Tally
from tests.attacks.sockets import WebSocket

PIPELINED = 50
COUNTED = ("bytes", "deadLetterBytes")
"""Fields of a mailbox's statistics that are bytes of live mail."""


class Node:
    """One run of `relaymesh serve` on an empty directory."""

    def __init__(self, directory: Path, attacks: Mapping[str, Attack], agents: Iterable[str]) -> None:
        self.directory = directory
        self._file = TokenFile(server_folder(directory))
        self._admin = self._file.create(["admin"], namespace="*")[1]
        self._ids: dict[str, str] = {}
        scopes = {name: [f"agent:{name}"] for name in agents} | {
            name: [f"agent:{name}" if attack.credential == "agent" else "read"]
            for name, attack in attacks.items()
            if attack.credential != "none"
        }
        self.tokens = {name: self._token(name, given) for name, given in scopes.items()}
        self.tokens |= {name: "" for name in attacks if name not in self.tokens}
        self._log = directory.with_suffix(".log").open("a+b")
        command = [sys.executable, "-m", "relaymesh.cli.main", "serve", "--json", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--dir", str(directory)],
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

    def _token(self, name: str, scopes: list[str]) -> str:
        made, text = self._file.create(scopes)
        self._ids[name] = made.id
        return text

    def open_mailboxes(self, count: int) -> None:
        """Mailboxes of agents that are not there."""
        with WebSocket(self.port, self._admin, Tally()) as ws:
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
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        """Resident memory of the process; 0 when it has ended."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        except OSError:
            return 0
        lines = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(lines[0].split()[1]) * 1024 if lines else 0

    def counted_bytes(self) -> int:
        """Live mail, as the node itself counts it."""
        _, stats = self.ask("GET", "/v1/stats")
        return sum(box.get(name, 0) for box in stats["mailboxes"].values() for name in COUNTED)

    def connections_opened(self, name: str) -> int:
        """WebSockets that were opened with a credential, by the audit log: one more than reconnects."""
        opened: Counter[str] = Counter()
        for path in sorted(server_folder(self.directory).glob("audit*.jsonl")):
            with path.open(encoding="utf-8") as lines:
                for line in lines:
                    if '"ws.opened"' in line:
                        opened[json.loads(line)["token"]] += 1
        return opened[self._ids[name]]

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
