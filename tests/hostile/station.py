"""A node that is served to hostile clients, with a bystander that is none."""

from __future__ import annotations

import http.client
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relaymesh import MeshSettings
from relaymesh.errors import Closed
from relaymesh.journal import JournalSettings
from relaymesh.kernel.token import format_token
from tests.client.serving import ServerThread
from tests.hostile.picture import differences, picture_of, unstored
from tests.hostile.report import Report

PATIENCE_S = 20.0
AGENTS = ("a1", "a2", "a3", "bystander")
SETTINGS = MeshSettings(journal=JournalSettings(allocate_bytes=0), checkpoint_bytes=5_000_000)
LIVES_A_DIRECTORY = 8


class Station:
    """A served directory. Surprises go to the report, with the line of the call that came before."""

    def __init__(self, folder: Path, report: Report, rng: random.Random) -> None:
        self.report = report
        self.rng = rng
        self.line = ""
        self._folder = folder
        self._directories = 0
        self._lives = 0
        self._start()

    def _start(self) -> None:
        self._directories += 1
        self._path = self._folder / f"data-{self._directories}"
        self.server = ServerThread(self._path, SETTINGS)
        self._furnish()

    def _furnish(self) -> None:
        self.token = self.server.token(["admin"])
        self._connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=PATIENCE_S)
        for name in AGENTS:
            self.ask("PUT", f"/v1/mailboxes/{name}", {"settings": {"capacity": 100_000}})

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request that must succeed."""
        status, said = self.tell(method, path, body)
        assert status < 300, f"{method} {path}: {status} {said[:300]!r}"
        return json.loads(said)

    def tell(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """A request that may be refused: what was done to the mailbox before is not known."""
        data = None if body is None else json.dumps(body)
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        for _ in range(2):
            try:
                self._connection.request(method, path, data, headers)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
                self._connection.close()  # it was idle for too long: a client opens another
        raise ConnectionError("the node closes every connection")

    def tokens(self) -> list[int]:
        """Lease tokens of deliveries that are out now."""
        with self.server.node.core._lock:
            return list(self.server.node.core.kernel.state.leases)[:50]

    def deliveries(self) -> list[str]:
        """The same, as JSON has them."""
        return [format_token(token) for token in self.tokens()]

    def letters(self) -> list[tuple[str, int]]:
        """Dead letters, by mailbox and sequence."""
        with self.server.node.core._lock:
            found = list(self.server.node.core.kernel.state.letters)[-50:]
        return [(each.mailbox, each.dead_sequence) for each in found]

    def stock(self) -> None:
        """Messages and deliveries for what comes next; not more than a run can carry."""
        for name in ("a1", "a2", "a3"):
            self.tell("POST", "/v1/messages", {"from": "a2", "to": name, "content": {"n": 1}})
        self.tell("POST", "/v1/mailboxes/a1/receive", {"max": 3, "holder": "hostile"})
        tokens = self.deliveries()
        if len(self.letters()) < 5 and tokens:
            self.tell("POST", "/v1/settle", {"nacks": [{"token": tokens[0], "retryable": False}]})
        if len(tokens) > 30:
            self.tell("POST", "/v1/settle", {"acks": tokens[:10]})

    def bystander(self) -> bool:
        """Whether an agent that did nothing wrong can send, receive and ack."""
        try:
            sent = self.ask(
                "POST", "/v1/messages", {"from": "bystander", "to": "bystander", "content": {"well": True}}
            )
            found = self.ask("POST", "/v1/mailboxes/bystander/receive", {"max": 1, "waitMs": 5_000})[
                "deliveries"
            ]
            assert [each["message"]["id"] for each in found] == [sent["messageId"]], (
                f"{sent} was sent, and {found} came"
            )
            settled = self.ask("POST", "/v1/settle", {"acks": [found[0]["token"]]})
            assert settled["results"][0]["outcome"] == "acked", settled
        except Exception as error:
            self.surprise("a bystander", "others cannot go on", f"{type(error).__name__}: {error}")
            return False
        self.report.bystander += 1
        return True

    def surprise(self, name: str, what: str, detail: str = "", where: str = "the node") -> None:
        self.report.surprise(name, what, where, self.line, detail)

    def reopened(self, *, kill: bool) -> None:
        """Stop the node, start it again on its directory, and compare. A dead directory is given up."""
        node = self.server.node
        lag = unstored(node)
        if lag is not None:
            self.surprise("store", "the store does not follow", lag)
        try:
            self._connection.close()
            self.server.stop(force=kill)
        except Exception as error:
            self.surprise("close", "the node did not stop", f"{type(error).__name__}: {error}")
        dead = node.core.failure
        self._lives += 1
        try:
            before = picture_of(node)
            if self._lives % LIVES_A_DIRECTORY == 0:
                shutil.rmtree(self._path, ignore_errors=True)
                self._start()
                return
            self.server = ServerThread(self._path, SETTINGS)
        except Exception as error:
            self.surprise("open", "the directory cannot be opened again", f"{type(error).__name__}: {error}")
            self._start()
            return
        self.report.reopened += 1
        if dead is None or isinstance(dead, Closed):
            for each in differences(before, picture_of(self.server.node)):
                self.surprise("open", "a restart changed the state", each)
        self._furnish()

    def stop(self) -> None:
        self._connection.close()
        self.server.stop(force=True)


def lives(station: Station, calls: int, one: Callable[[], None], every: int = 200) -> None:
    """Make calls; look at the bystander, and restart, as often as a run must."""
    for i in range(calls):
        before = station.report.surprised
        one()
        surprised = station.report.surprised > before
        if i % 5 == 0:
            station.stock()
        if (surprised or i % 10 == 0) and not station.bystander():
            station.reopened(kill=True)
        elif surprised or i % every == every - 1:
            station.reopened(kill=station.rng.random() < 0.5)
