"""A mesh on a disk that loses power, and a ledger that knows what was promised."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from relaymesh import Empty, MeshSettings
from relaymesh.journal import JournalSettings
from relaymesh.testing import Keep, ManualClock, ManualMesh, MemoryDisk, PowerLost

SMALL = MeshSettings(
    checkpoint_bytes=6_000,
    journal=JournalSettings(segment_bytes_max=2_000, allocate_bytes=500, checkpoint_reserve_bytes=1_000),
)
KEYS = ("a", "b", None)


@dataclass
class Ledger:
    """What the users of the mesh know, whatever the disk forgets."""

    intents: dict[str, str | None] = field(default_factory=dict)
    receipts: dict[str, int] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    """Acks that were tried: what they settled may or may not be back."""
    gone: set[str] = field(default_factory=set)
    """Acks that answered after the sync."""
    first_seen: list[str] = field(default_factory=list)
    """Ids by their first delivery."""

    def see(self, id: str) -> None:
        assert id in self.intents, "nothing phantom"
        assert id not in self.gone, "what was durably acked never comes back"
        if id not in self.first_seen:
            self.first_seen.append(id)


class Life:
    """One start of the mesh: random work until the power goes, or it is stopped."""

    def __init__(self, disk: MemoryDisk, clock: ManualClock, ledger: Ledger, rng: random.Random) -> None:
        self.ledger = ledger
        self.rng = rng
        self.mesh = ManualMesh(disk=disk, clock=clock, settings=SMALL, seed=rng.getrandbits(32))
        self.planner = self.mesh.agent("planner")
        self.coder = self.mesh.agent("coder", max_retries=1000, backoff_ms_base=10, backoff_ms_cap=10)
        self.held: list[Any] = []

    def work(self, steps: int) -> None:
        for _ in range(steps):
            act = self.rng.choices(
                [self.send, self.receive, self.ack, self.nack, self.rest, self.checkpoint],
                [6, 5, 4, 1, 2, 0.3],
            )[0]
            act()

    def send(self) -> None:
        batch = []
        for _ in range(self.rng.choice([1, 1, 3])):
            id = f"m{len(self.ledger.intents)}"
            key = self.rng.choice(KEYS)
            self.ledger.intents[id] = key
            batch.append(
                {"to": "coder", "content": "x" * self.rng.randrange(60), "id": id, "key": key, "ttl": 0}
            )
        for receipt in self.planner.send_many(batch):
            self.ledger.receipts[receipt.id] = receipt.sequence

    def receive(self) -> None:
        for delivery in self.coder.receive_many(self.rng.choice([1, 4])):
            self.ledger.see(delivery.id)
            self.held.append(delivery)

    def ack(self) -> None:
        if self.held:
            delivery = self.held.pop(0)
            durable = self.rng.random() < 0.3
            self.ledger.finished.add(delivery.id)
            if delivery._held:
                delivery.ack(durable=durable)
                if durable:
                    self.ledger.gone.add(delivery.id)

    def nack(self) -> None:
        if self.held:
            delivery = self.held.pop()
            if delivery._held:
                delivery.nack("again")

    def rest(self) -> None:
        self.mesh.advance(self.rng.choice([0.02, 0.2, 40]))

    def checkpoint(self) -> None:
        self.mesh.checkpoint()

    def drain(self) -> set[str]:
        """Everything that is still there, acked as it comes."""
        left = set()
        while True:
            try:
                with self.coder.receive(timeout=120) as delivery:
                    self.ledger.see(delivery.id)
                    left.add(delivery.id)
            except Empty:
                return left


def crash_again_and_again(seed: int, lives: int = 4) -> None:
    """The checker: nothing receipted is lost, nothing is phantom, lanes keep their order."""
    rng = random.Random(seed)
    ledger, clock, disk = Ledger(), ManualClock(), MemoryDisk(seed=seed)
    for _ in range(lives):
        disk.cut_power_after(rng.choice([3, 10, 30, 100, 300]))
        try:
            Life(disk, clock, ledger, rng).work(200)
        except PowerLost:
            pass
        keep = rng.choice(list(Keep))
        disk = disk.kill() if keep is Keep.EVERYTHING else disk.crash(keep, seed=rng.getrandbits(32))
        clock.advance(rng.choice([0, 1, 100]))
    last = Life(disk, clock, ledger, rng)
    left = last.drain()
    lost = ledger.receipts.keys() - left - ledger.finished
    assert not lost, f"seed {seed}: receipted and lost: {sorted(lost)}"
    assert last.mesh.dead_letters() == []
    for key in ("a", "b"):
        seen = [id for id in ledger.first_seen if ledger.intents[id] == key and id in ledger.receipts]
        assert seen == sorted(seen, key=lambda id: ledger.receipts[id]), f"seed {seed}: lane {key}"
    last.mesh.close()
