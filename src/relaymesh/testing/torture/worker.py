"""The program that is tortured. Run by `child.py` as `python -m relaymesh.testing.torture.worker`.

It waits for a line on stdin, a JSON object with the fields of `Orders`. It says on stdout what it is about to
do, one word a line: `opening`, then `ready {"recovery_ms": …}`, and `checkpoint` before each checkpoint it is
told to take. SIGTERM stops it gracefully; the end of stdin at once, without giving anything back, also when
its parent is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal

import msgspec

from relaymesh.client.settings import RemoteSettings
from relaymesh.errors import Closed, LeaseLost
from relaymesh.journal import JournalSettings
from relaymesh.node.settings import Durability, MeshSettings
from relaymesh.testing.torture.ledger import Ledger, awake_ms, digest_of
from relaymesh.testing.torture.ports import LoopPort, PlainPort, Port, drive
from relaymesh.testing.torture.workload import (
    ANSWERS,
    ASKS,
    AUDIT,
    BILLING,
    FLAKY,
    LANES,
    LEASE_MS,
    MAILBOXES,
    Order,
    Pace,
    Receiver,
    Sender,
    delivery_line,
    done_line,
    handler_of,
    open_mailboxes,
    order_of,
    settle_line,
)

AWAY_S_MAX = 60.0
"""How long a node may be away before its clients give up."""
DRAIN_S_MAX = 90.0
STOP_S = 5.0


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker is to do."""

    kind: Literal["plain", "loop", "drain"]
    data: str
    ledgers: str
    run: int
    tag: str
    seed: str
    workers: int = 4
    per_second: float = 100_000.0
    durability: Durability = "synced"
    small: bool = False
    """Small segments and frequent checkpoints, so that a kill often meets a rotation or a checkpoint."""
    checkpoints: bool = False
    """One checkpoint after the other."""
    unknown: list[list[str]] = []
    """Intent lines of earlier workers that have no receipt."""
    url: str = ""
    """Work through the node there; else the directory is opened."""
    token: str = ""
    first_sender: int = 0
    """Senders are numbered from here: workers at the same time must not share lanes."""

    @property
    def senders(self) -> range:
        return range(self.first_sender, self.first_sender + self.workers)

    def place(self) -> dict[str, Any]:
        """The arguments that open the mesh."""
        if not self.url:
            return {"path": self.data, "settings": self.settings()}
        return {"path": self.url, "token": self.token, "settings": RemoteSettings(unreachable_s=AWAY_S_MAX)}

    def settings(self) -> MeshSettings:
        if not self.small:
            journal = JournalSettings(segment_bytes_max=16_000_000, allocate_bytes=4_000_000)
            return MeshSettings(durability=self.durability, checkpoint_bytes=24_000_000, journal=journal)
        journal = JournalSettings(
            segment_bytes_max=120_000, allocate_bytes=60_000, checkpoint_reserve_bytes=4_000_000
        )
        return MeshSettings(
            durability=self.durability, checkpoint_bytes=600_000, journal=journal, remembered_ids_max=5_000
        )

    def unknown_of(self, sender: int) -> list[Order]:
        orders = [order_of(words) for words in self.unknown]
        mine = [order for order in orders if order.id.split(".")[1] == str(sender)]
        return sorted(mine, key=lambda order: order.number)


class Work:
    """Everything that goes on in one worker, as coroutines that end when the mesh closes."""

    def __init__(self, orders: Orders, port: Port, ledger: Ledger) -> None:
        pace = Pace(orders.per_second)
        self.parts: list[Any] = []
        for number in orders.senders:
            sender = Sender(
                port, ledger, pace, tag=orders.tag, run=orders.run, number=number, seed=orders.seed
            )
            self.parts.append(sender.work(orders.unknown_of(number)))
        mailboxes = [LANES, BILLING, ASKS, ANSWERS, *[LANES] * max(0, orders.workers - 3)]
        for number, mailbox in enumerate(mailboxes):
            receiver = Receiver(port, ledger, run=orders.run, number=number, seed=orders.seed)
            self.parts.append(receiver.work(mailbox))
        if orders.checkpoints:
            self.parts.append(_checkpoints(port))
        port.handle(FLAKY, handler_of(ledger))
        port.handle(AUDIT, handler_of(ledger))


async def _checkpoints(port: Port) -> None:
    try:
        while True:
            say("checkpoint")
            await port.checkpoint()
            await port.pause(0.02)
    except Closed:
        return


def say(word: str, **fields: Any) -> None:
    text = f"{word} {msgspec.json.encode(fields).decode()}" if fields else word
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(sys.stdin.fileno(), 65536)
        if not part:
            return b""
        line += part
    return line


def watch_stdin(ended: Any) -> None:
    """Call `ended` when no process holds the other end any more."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        ended()

    threading.Thread(target=watch, name="torture-stdin", daemon=True).start()


# -- a Mesh


def work_in_threads(orders: Orders, ledger: Ledger) -> None:
    say("opening")
    began = time.perf_counter()
    port = PlainPort(**orders.place())
    recovery_ms = (time.perf_counter() - began) * 1000
    stop = Stop(port.stopping.set)
    drive(open_mailboxes(port))
    say("ready", recovery_ms=recovery_ms)
    threads = [
        threading.Thread(target=_drive_or_die, args=(part,), daemon=True)
        for part in Work(orders, port, ledger).parts
    ]
    for thread in threads:
        thread.start()
    while not port.stopping.wait(1.0):
        pass
    port.mesh.close(force=stop.forced)
    for thread in threads:
        thread.join(STOP_S)


def _drive_or_die(part: Any) -> None:
    """An error in one thread must not go unnoticed because the others go on."""
    try:
        drive(part)
    except BaseException:
        logging.getLogger("relaymesh.torture").exception("a part of the work failed")
        logging.shutdown()
        os._exit(70)


class Stop:
    """How the end was asked for: SIGTERM is graceful, the end of stdin is not."""

    def __init__(self, stop: Any) -> None:
        self.forced = False
        self._stop = stop
        signal.signal(signal.SIGTERM, lambda *_: stop())
        watch_stdin(self._at_once)

    def _at_once(self) -> None:
        self.forced = True
        self._stop()


# -- an AsyncMesh


async def work_on_a_loop(orders: Orders, ledger: Ledger) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    say("opening")
    began = time.perf_counter()
    port = LoopPort(**orders.place())
    await port.open()
    recovery_ms = (time.perf_counter() - began) * 1000
    stop = Stop(lambda: loop.call_soon_threadsafe(stopping.set))
    await open_mailboxes(port)
    say("ready", recovery_ms=recovery_ms)
    tasks = [asyncio.create_task(part) for part in Work(orders, port, ledger).parts]
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
    await port.mesh.close(force=stop.forced)
    await asyncio.wait(tasks, timeout=STOP_S)
    for task in tasks:
        if task.done() and task.exception() is not None:
            raise task.exception() or AssertionError
        task.cancel()


# -- the end


def drain(orders: Orders, ledger: Ledger) -> None:
    """Take what is left, write down what is dead, and close the books."""
    watch_stdin(lambda: os._exit(1))
    say("opening")
    began = time.perf_counter()
    port = PlainPort(**orders.place())
    say("ready", recovery_ms=(time.perf_counter() - began) * 1000)
    drive(_drain(port, ledger))
    mesh = port.mesh
    for mailbox in MAILBOXES:
        letters = mesh.dead_letters(receiver=f"default/{mailbox}")
        ledger.write(
            *[
                (
                    "L", letter.message_id, mailbox, letter.reason, letter.attempts,
                    digest_of(letter.message_id, letter.envelope.key, letter.content),
                )
                for letter in letters
            ]
        )  # fmt: skip
        mesh.purge_dead_letters(letters)
    boxes = mesh.stats().mailboxes
    for mailbox in MAILBOXES:
        box = boxes[f"default/{mailbox}"]
        ledger.write(("Z", mailbox, box.accepted, box.acked, box.dropped, box.dead, box.pending))
    mesh.close()


async def _drain(port: PlainPort, ledger: Ledger) -> None:
    await open_mailboxes(port)
    deadline = time.monotonic() + DRAIN_S_MAX
    while time.monotonic() < deadline:
        boxes = port.mesh.stats().mailboxes
        left = [mailbox for mailbox in MAILBOXES if boxes[f"default/{mailbox}"].pending]
        if not left:
            return
        for mailbox in left:
            await _drain_one(port, ledger, mailbox)


async def _drain_one(port: PlainPort, ledger: Ledger, mailbox: str) -> None:
    deliveries = await port.receive(mailbox, 200, 0.05)
    if not deliveries:
        return
    ledger.write(*[line for each in deliveries for line in (delivery_line(each, LEASE_MS), done_line(each))])
    begun = awake_ms()
    try:
        await port.ack(deliveries, True)
    except LeaseLost:
        pass  # each of them knows whether it is meant, and comes again
    ledger.write(*[settle_line(each, "acked" if each.settled else "lost", begun) for each in deliveries])


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    line = _first_line()
    if not line:
        return  # started ahead of time, and not needed
    orders = msgspec.json.decode(line, type=Orders)
    ledger = Ledger(Path(orders.ledgers), orders.run)
    if orders.kind == "drain":
        drain(orders, ledger)
    elif orders.kind == "loop":
        asyncio.run(work_on_a_loop(orders, ledger))
    else:
        work_in_threads(orders, ledger)


if __name__ == "__main__":
    main()
