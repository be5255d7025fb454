"""Run 3: the same message id a hundred times: in a row, from threads at once, after a restart. One effect."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from acceptance.verdict import Verdict
from relaymesh import Conflict, Mesh
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.receipt import Receipt

TOPIC, NAME = "order.created", "billing"
IN_A_ROW, RACED, NEXT = "order-1001-created", "order-1002-created", "order-1003-created"
CONTENT = {"order": 1001}
TIMES = 100
THREADS = 8
WAIT_S = 10.0


def run(place: Path) -> Verdict:
    verdict = Verdict(
        "duplicates", f"one id {TIMES} times in a row, one from {THREADS} threads, both after a restart"
    )
    effects: list[str] = []
    receipts: dict[str, list[Receipt]] = {}
    path = place / "duplicates"
    with Mesh(path) as mesh:
        _handle(mesh, effects)
        receipts[IN_A_ROW] = _in_a_row(mesh, IN_A_ROW)
        receipts[RACED] = _raced(mesh, RACED)
        _until(lambda: {IN_A_ROW, RACED} <= set(effects))
        conflict = _conflicts(mesh)
    with Mesh(path) as mesh:
        _handle(mesh, effects)
        for id in (IN_A_ROW, RACED):
            receipts[id] += _in_a_row(mesh, id)
        mesh.publish(TOPIC, CONTENT, id=NEXT)
        _until(lambda: NEXT in effects)
        box = mesh.stats().mailboxes[f"default/{TOPIC}:{NAME}"]
    verdict.numbers = {
        "published": {id: len(all) for id, all in receipts.items()},
        "effects": {id: effects.count(id) for id in receipts},
        "first_receipts": {id: _first(all) for id, all in receipts.items()},
        "accepted": box.accepted,
    }
    for id, all in receipts.items():
        verdict.check(f"{id}: {len(all)} times, one effect", effects.count(id) == 1)
        verdict.check(f"{id}: one receipt is the first, every other says duplicate", _first(all) == 1)
        verdict.check(f"{id}: all receipts name one sequence", len({each.sequence for each in all}) == 1)
    verdict.check("the mailbox accepted each once", box.accepted == 3)  # with the one that came after them
    verdict.check("the same id with other content is a conflict", conflict)
    verdict.check("another id is another effect", effects.count(NEXT) == 1)
    return verdict


def _first(receipts: list[Receipt]) -> int:
    return sum(1 for receipt in receipts if not receipt.duplicate)


def _handle(mesh: Mesh, effects: list[str]) -> None:
    @mesh.on(TOPIC, NAME)
    def billing(delivery: Delivery) -> None:
        effects.append(delivery.id)


def _in_a_row(mesh: Mesh, id: str) -> list[Receipt]:
    return [mesh.publish(TOPIC, CONTENT, id=id) for _ in range(TIMES)]


def _raced(mesh: Mesh, id: str) -> list[Receipt]:
    """Nobody has seen the id before, and all threads publish it at once."""
    receipts: list[Receipt] = []
    start = threading.Barrier(THREADS)

    def publish() -> None:
        start.wait()
        receipts.extend(_in_a_row(mesh, id))

    threads = [threading.Thread(target=publish) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return receipts


def _conflicts(mesh: Mesh) -> bool:
    try:
        mesh.publish(TOPIC, {"order": 9999}, id=IN_A_ROW)
    except Conflict:
        return True
    return False


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
