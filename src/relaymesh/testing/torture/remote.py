"""Torture through a server: two clients stay and work on, while the server is killed, paused and restarted.

The clients are the same workers with the same ledgers, and the same checker judges them. What is new to be
shown: they find the server again by themselves, send again what was not answered, and finish under the leases
they had before.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from relaymesh.testing.torture.child import Child, Ended, Silent
from relaymesh.testing.torture.ledger import awake_ms
from relaymesh.testing.torture.plan import Cycle, Deed
from relaymesh.testing.torture.served import NotServed, Served
from relaymesh.testing.torture.torture import READY_S_MAX, STOP_S_MAX, Failed, Settings, Torture
from relaymesh.testing.torture.worker import Orders

CLIENTS = 2
SERVER_LEDGER = "000000.000"
TYPICAL_START_S = 1.0


class _Client:
    """One worker that works through the server, and which run it is."""

    def __init__(self, child: Child, orders: Orders) -> None:
        self.child = child
        self.run = orders.run


class RemoteTorture(Torture):
    """One run."""

    def __init__(self, settings: Settings, tell: Any = None) -> None:
        super().__init__(settings, tell)
        self._served = Served(settings.data, settings.ledgers / "stderr-server")
        self._token = ""
        self._clients: list[_Client] = []
        self._deeds: dict[Deed, Callable[[Cycle, float], None]] = {
            "kill_at_work": self._server_killed,
            "kill_opening": self._server_killed_twice,
            "kill_checkpoint": self._client_killed,
            "pause": self._server_paused,
            "stop": self._server_restarted,
            "restart": self._client_restarted,
        }

    def _round(self, plan: Iterator[Cycle]) -> None:
        try:
            super()._round(plan)
        except NotServed as wrong:
            raise Failed(str(wrong)) from None
        finally:
            for client in self._clients:
                client.child.end()
            self._served.end()

    def _drain(self) -> None:
        """The clients end, then the server; what is left is taken from the directory itself."""
        for number in range(len(self._clients)):
            self._end_client(number)
        if self._clients:
            self._clients = []
            self._served.stop()
        super()._drain()

    def _cycle(self, cycle: Cycle, per_second: float) -> None:
        try:
            if not self._clients:
                self._begin(per_second)
            self._all_work(cycle.work_s)
            self._deeds[cycle.deed](cycle, per_second)
        except Silent as silent:
            raise Failed(f"a client came to no {silent} within {READY_S_MAX:g} s: {self._errors()}") from None
        except Ended:
            raise Failed(f"a client ended by itself: {self._errors()}") from None

    def _begin(self, per_second: float) -> None:
        self.settings.data.mkdir(parents=True, exist_ok=True)
        self._token = self._token or self._served.make_token()
        self._start_server()
        for number in range(CLIENTS):
            self._clients.append(self._new_client(number, per_second))
            self._ready_client(number)

    def _start_server(self) -> None:
        self.verdict.recoveries_ms.append(self._served.start())
        with (self.settings.ledgers / SERVER_LEDGER).open("a", encoding="ascii") as ledger:
            ledger.write(f"B {awake_ms()}\n")

    # -- what is done to the server

    def _server_killed(self, cycle: Cycle, per_second: float) -> None:
        self._kill_server()
        self._start_server()

    def _server_killed_twice(self, cycle: Cycle, per_second: float) -> None:
        """Killed, and killed again while it recovers."""
        self._kill_server()
        self._served.spawn()
        time.sleep(cycle.share * TYPICAL_START_S)
        self._kill_server()
        self._start_server()

    def _server_paused(self, cycle: Cycle, per_second: float) -> None:
        """Longer than every lease; its clients see a node that does not answer."""
        self._served.signal(signal.SIGSTOP)
        time.sleep(cycle.pause_s)
        self._served.signal(signal.SIGCONT)
        self.verdict.stops += 1

    def _server_restarted(self, cycle: Cycle, per_second: float) -> None:
        self._served.stop()
        self.verdict.restarts += 1
        self._start_server()

    def _kill_server(self) -> None:
        self._served.kill()
        self.verdict.kills += 1

    # -- and to its clients

    def _client_killed(self, cycle: Cycle, per_second: float) -> None:
        """One of the clients is killed in the middle of its work, and another takes its place."""
        number = int(cycle.share * CLIENTS)
        self._kill(self._clients[number].child)
        self._note_unknown(self._clients[number].run)
        self._clients[number] = self._new_client(number, per_second)
        self._ready_client(number)

    def _client_restarted(self, cycle: Cycle, per_second: float) -> None:
        number = int(cycle.share * CLIENTS)
        self._end_client(number)
        self._clients[number] = self._new_client(number, per_second)
        self._ready_client(number)

    def _new_client(self, number: int, per_second: float) -> _Client:
        self._run += 1
        settings = self.settings
        orders = Orders(
            kind="loop" if number % 2 else "plain",
            data=str(settings.data),
            ledgers=str(settings.ledgers),
            run=self._run,
            tag=settings.tag,
            seed=str(settings.seed),
            workers=settings.workers,
            per_second=per_second / CLIENTS,
            unknown=list(self._unknown.values()),
            url=self._served.url,
            token=self._token,
            first_sender=number * settings.workers,
        )
        child = self._spawn()
        child.begin(orders)
        return _Client(child, orders)

    def _ready_client(self, number: int) -> None:
        self._clients[number].child.hear("ready", READY_S_MAX)

    def _end_client(self, number: int) -> None:
        """Gracefully. What it had in hand goes back."""
        client = self._clients[number]
        client.child.signal(signal.SIGTERM)
        code = client.child.wait(STOP_S_MAX)
        if code is None:
            raise Failed(f"a client did not stop within {STOP_S_MAX:g} s: {client.child.errors()}")
        if code != 0:
            raise Failed(f"a client ended with exit code {code}: {client.child.errors()}")
        client.child.end()
        client.child.forget_if_silent()
        self._note_unknown(client.run)

    def _all_work(self, seconds: float) -> None:
        """Let them. Neither server nor clients may end by themselves."""
        deadline = time.monotonic() + seconds
        while not self._interrupted:
            self._served.check()
            for client in self._clients:
                if client.child.wait(0.0) is not None:
                    raise Ended
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.05))

    def _errors(self) -> str:
        said = [client.child.errors() for client in self._clients]
        return " | ".join(filter(None, said)) or self._served.errors()
