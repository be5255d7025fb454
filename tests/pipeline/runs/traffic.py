"""A real mesh at work for some days: mail, topics, failures, delays, expiries, redrives and purges."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from relaymesh.sdk.delivery import Delivery
from relaymesh.testing.clock import ManualClock
from relaymesh.testing.mesh import ManualMesh

if TYPE_CHECKING:
    from relaymesh.wire.stats import MeshStats

DAY_S = 86_400


class Traffic:
    """One mesh in one directory, whose days pass when the test says so."""

    def __init__(self, path: Path, start: datetime = datetime(2026, 3, 1, 9, tzinfo=UTC)) -> None:
        self.path = path
        self._clock = ManualClock(start)
        self._days = 0
        self.reopen()
        self.mesh.agent("planner")
        self.mesh.agent("coder", max_retries=1)
        self.mesh.agent("tester")
        self.mesh.agent("builder")
        self.mesh.subscribe("order.created", "billing")
        self.mesh.subscribe("order.*", "audit")

    def reopen(self) -> None:
        """Start the mesh; after a close it goes on in a new segment."""
        self.mesh = ManualMesh(self.path, clock=self._clock)

    def day(self, messages: int = 6) -> None:
        """One day of work; some of it is left for the days after. Then it is tomorrow."""
        mesh, day = self.mesh, self._days
        planner, coder, tester = (mesh.agent(name) for name in ("planner", "coder", "tester"))
        for number in range(messages):
            planner.send("coder", {"day": day, "number": number}, priority=1 + number % 5, ttl=0)
        planner.send("tester", "later", delay_ms=30 * 3_600_000, ttl=0)
        planner.send("tester", "soon", delay_ms=2_000)
        planner.send("tester", "nobody takes it", ttl=5)
        mesh.subscribe("order.*", "visitor")
        for topic in ("order.created", "order.paid", "nobody.listens"):
            mesh.publish(topic, {"day": day}, ttl=0)
        mesh.unsubscribe("order.*", "visitor")
        self._work(coder.receive_many(messages - 1, timeout=1))
        mesh.advance(10)
        for delivery in tester.receive_many(2, timeout=5):
            delivery.ack()
        for subscription in (mesh.subscribe("order.created", "billing"), mesh.subscribe("order.*", "audit")):
            for delivery in subscription.receive_many(2, timeout=1)[:1]:
                delivery.ack()
        self._tasks(day)
        letters = mesh.dead_letters()
        if day > 0:
            mesh.redrive(letters[:1])
            mesh.purge_dead_letters(letters[1:2])
        self._days += 1
        mesh.advance(DAY_S - 3_600)

    def _tasks(self, day: int) -> None:
        """Tasks that succeed late, are abandoned often, time out, and are cancelled."""
        mesh, builder = self.mesh, self.mesh.agent("builder")
        steps = {
            "plan": {"agent": "builder"},
            "build": {"agent": "builder", "needs": ["plan"], "for_each": "${{ steps.plan.output }}"},
        }
        moment = mesh.now.isoformat()  # a day may be played twice
        done = mesh.submit({"workflow": "work", "steps": steps}, day, key=f"work {moment}")
        for _ in range(5):
            builder.receive(timeout=1)
            mesh.advance(20)  # the lease runs out
        late = builder.receive(timeout=1)
        mesh.advance(20)
        late.finish([1, 2])
        for delivery in builder.receive_many(2, timeout=1):
            delivery.finish(day)
        assert done.result(1) == [day, day]
        wait = {"agent": "builder", "timeout": 30}
        mesh.submit({"workflow": "slow", "steps": {"wait": wait}}, day, key=f"slow {moment}")
        mesh.advance(60)
        never = {"workflow": "never", "steps": {"wait": {"agent": "builder"}}}
        mesh.submit(never, day, key=f"never {moment}").cancel("enough")

    def _work(self, deliveries: list[Delivery]) -> None:
        for number, delivery in enumerate(deliveries):
            match number % 5:
                case 0:
                    delivery.nack(ValueError("not that way"), code="invalid", retryable=False)
                case 1:
                    delivery.nack(TimeoutError("too slow"), code="timeout")
                case 2:
                    delivery.nack(until=60)
                case _:
                    delivery.ack()

    def close(self) -> MeshStats:
        """Stop it; answers the last counts."""
        stats = self.mesh.stats()
        self.mesh.close()
        return stats
