"""The program that is killed: sends and handles at full speed, and keeps a ledger beside it.

    worker.py DIRECTORY LEDGER RUN SEED KIND     until it is killed
    worker.py DIRECTORY LEDGER RUN SEED drain    takes what is left, and stops gracefully

Each line of the ledger is one write to a file opened with O_APPEND, which survives a kill:

    I id key n          about to send            R id sequence       receipted
    X id                refused: not sent        H id key n token    a handler has it
    D id key n token    drained at the end       L id                a dead letter
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

from relaymesh import AsyncMesh, MailboxFull, Mesh, MeshSettings, Retry
from relaymesh.journal import JournalSettings

KEYS = 6
SENDERS = 2
SETTINGS = MeshSettings(
    checkpoint_bytes=1_500_000,
    journal=JournalSettings(
        segment_bytes_max=500_000, allocate_bytes=250_000, checkpoint_reserve_bytes=1_000_000
    ),
)
OPTIONS: dict[str, Any] = {"max_retries": 1_000_000, "capacity": 1_000, "backoff_ms_base": 1}


class Ledger:
    def __init__(self, folder: Path, run: int) -> None:
        self._file = os.open(folder / f"{run:03d}", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def write(self, *lines: tuple[object, ...]) -> None:
        os.write(self._file, "".join(" ".join(map(str, line)) + "\n" for line in lines).encode())


class Sender:
    """Numbers the messages of its keys, each key by one sender only, so that its order is known."""

    def __init__(self, ledger: Ledger, run: int, number: int, seed: int) -> None:
        self.rng = random.Random(f"{seed}/{run}/{number}")
        self.ledger = ledger
        self.run = run
        self.keys = [key for key in range(KEYS) if key % SENDERS == number]
        self.next = dict.fromkeys(self.keys, 0)

    def batch(self) -> list[dict[str, Any]]:
        messages = []
        for _ in range(self.rng.choice([1, 1, 5, 20])):
            key = self.rng.choice(self.keys)
            n = self.run * 1_000_000 + self.next[key]
            self.next[key] += 1
            content = [n, "x" * self.rng.randrange(200)]
            messages.append({"to": "coder", "content": content, "id": f"{key}-{n}", "key": f"k{key}"})
        self.ledger.write(*[("I", each["id"], each["key"], each["content"][0]) for each in messages])
        return messages

    def receipted(self, receipts: list[Any]) -> None:
        self.ledger.write(*[("R", receipt.id, receipt.sequence) for receipt in receipts])

    def refused(self, messages: list[dict[str, Any]]) -> None:
        self.ledger.write(*[("X", each["id"]) for each in messages])


def note(ledger: Ledger, what: str, delivery: Any) -> None:
    ledger.write((what, delivery.id, delivery.key, delivery.content[0], delivery.token))


def handler_of(ledger: Ledger) -> Any:
    def handle(delivery: Any) -> None:
        note(ledger, "H", delivery)
        if delivery.attempt == 1 and delivery.content[0] % 53 == 0:
            raise Retry("once more")

    return handle


def work(path: Path, ledger: Ledger, run: int, seed: int) -> None:
    mesh = Mesh(path, settings=SETTINGS)
    planner, coder = mesh.agent("planner"), mesh.agent("coder", **OPTIONS)
    print("ready", flush=True)
    coder.handle(handler_of(ledger))

    def send(sender: Sender) -> None:
        while True:
            messages = sender.batch()
            try:
                sender.receipted(planner.send_many(messages, timeout=5))
            except MailboxFull:
                sender.refused(messages)

    for number in range(1, SENDERS):
        threading.Thread(target=send, args=(Sender(ledger, run, number, seed),)).start()
    send(Sender(ledger, run, 0, seed))


async def work_on_a_loop(path: Path, ledger: Ledger, run: int, seed: int) -> None:
    mesh = await AsyncMesh(path, settings=SETTINGS).open()
    planner, coder = await mesh.agent("planner"), await mesh.agent("coder", **OPTIONS)
    print("ready", flush=True)
    handle = handler_of(ledger)

    async def handle_awaited(delivery: Any) -> None:
        handle(delivery)

    coder.handle(handle_awaited)

    async def send(sender: Sender) -> None:
        while True:
            messages = sender.batch()
            try:
                sender.receipted(await planner.send_many(messages, timeout=5))
            except MailboxFull:
                sender.refused(messages)

    await asyncio.gather(*[send(Sender(ledger, run, number, seed)) for number in range(SENDERS)])


def drain(path: Path, ledger: Ledger) -> None:
    with Mesh(path, settings=SETTINGS) as mesh:
        coder = mesh.agent("coder")
        while mesh.stats().pending:
            deliveries = coder.receive_many(100, timeout=2)
            for delivery in deliveries:
                note(ledger, "D", delivery)
            mesh.ack_many(deliveries)
        ledger.write(*[("L", letter.message_id) for letter in mesh.dead_letters()])
        box = mesh.stats().mailboxes["default/coder"]
    print(
        json.dumps({"accepted": box.accepted, "acked": box.acked, "dropped": box.dropped, "dead": box.dead})
    )


def main() -> None:
    path, folder, run, seed, kind = sys.argv[1:]
    ledger = Ledger(Path(folder), int(run))
    if kind == "drain":
        drain(Path(path), ledger)
    elif kind == "async":
        asyncio.run(work_on_a_loop(Path(path), ledger, int(run), int(seed)))
    else:
        work(Path(path), ledger, int(run), int(seed))


if __name__ == "__main__":
    main()
