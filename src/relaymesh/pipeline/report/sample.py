"""Some days of a small software company, for a first look at a full report: nothing here is measured.

A planner hands work to a coder, who hands it to a tester; orders are published to billing and to a ledger.
About one attempt in ten fails, 70 % of these with timeouts, 20 % with invalid input, 10 % with rate limits.
One morning the model is down, one afternoon a batch comes at once, an importer retries what no retry can
cure, a scraper falls silent, and every evening an operator looks at the dead letters. Releases are workflows:
a plan, a build for each target, tests and docs beside each other, and a ship that sometimes has no road. The
same seed gives the same days; they end with the last midnight, so that a report on them is not stale.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from relaymesh.kernel.contract import INVALID, RATE_LIMITED, TIMEOUT, Rule
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.mesh import Mesh

__all__ = ["sample_days", "sample_start"]

DAY_S = 86_400
TICK_S = 900
FAILURE_SHARE = 0.11
OUTAGE_SHARE = 0.9
BURST = 1_200
"""More than the 1,000 of the rule `queue_deep`."""
BAD_BATCH = 60
"""More in an hour than the 50 of the rule `dead_letters_growing`."""

FAILURES = {TIMEOUT: 70, INVALID: 20, RATE_LIMITED: 10}
RELEASE = {
    "workflow": "release",
    "steps": {
        "plan": {"agent": "architect"},
        "build": {"agent": "builder", "needs": ["plan"], "for_each": "${{ steps.plan.output }}"},
        "test": {"agent": "checker", "needs": ["build"]},
        "docs": {"agent": "writer", "needs": ["plan"], "on_failure": "continue"},
        "ship": {"agent": "shipper", "needs": ["test", "docs"], "retry": {"max_attempts": 2}},
    },
}
HOTFIX = {
    "workflow": "hotfix",
    "deadline": "20m",
    "steps": {
        "fix": {"agent": "builder"},
        "test": {"agent": "checker", "needs": ["fix"]},
        "ship": {"agent": "shipper", "needs": ["test"]},
    },
}
NO_ROOM = "the shelf is full"
BACKUP = {
    "workflow": "backup",
    "steps": {"store": {"agent": "shipper", "input": NO_ROOM, "retry": {"max_attempts": 1}}},
}
"""It ends in a dead letter, always."""
SECONDS = {"architect": 20, "builder": 90, "checker": 40, "writer": 60, "shipper": 15}
"""How long a step takes each of them, about."""
ERRORS = {
    TIMEOUT: "the model did not answer within 30 s",
    INVALID: "field 'branch' is missing",
    RATE_LIMITED: "429 from the model, try again later",
}


def sample_start(days: int, now: datetime) -> datetime:
    """The moment at which so many days have to begin: a midnight, or earlier where it is too close to now."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    overtime = timedelta(minutes=30 + 10 * days)  # a burst holds everything up, and handlers take their time
    return midnight - timedelta(days=days) - (overtime if now - midnight < overtime else timedelta(0))


def sample_days(
    mesh: Mesh, advance: Callable[[float], object], *, days: int = 3, seed: int = 0, burst: int = BURST
) -> None:
    """Let so many days pass on a mesh whose time passes only by `advance(seconds)`."""
    shop = _Shop(mesh, advance, random.Random(seed))
    for day in range(days):
        for tick in range(DAY_S // TICK_S):
            shop.outage = (day, tick // 4) == (1, 9)
            shop.order_work(tick)
            shop.order_releases(tick)
            if (day, tick) == (1, 56):
                shop.burst(burst)
            if (day, tick) == (days - 1, 44):
                shop.bad_batch()
            advance(TICK_S)
        shop.evening()
    shop.leave_work_for_tomorrow()


class _Shop:
    """The agents and what they do. Handlers run while time passes, one at a time."""

    def __init__(self, mesh: Mesh, advance: Callable[[float], object], dice: random.Random) -> None:
        self._mesh = mesh
        self._advance = advance
        self._dice = dice
        self.outage = False
        self._planner = mesh.agent("planner")
        self._coder = mesh.agent("coder", capacity=2_000, breaker=False)
        self._tester = mesh.agent("tester")
        self._importer = mesh.agent("importer", contract={INVALID: Rule(retries=2)}, breaker=False)
        self._scraper = mesh.agent("scraper", lease_ms=30_000)
        self._archive = mesh.agent("archive")
        self._coder.handle(self._code)
        self._tester.handle(self._test)
        self._importer.handle(self._import)
        for name in SECONDS:
            mesh.agent(name, breaker=False).handle(self._step)
        mesh.subscribe("order.*", "billing").handle(self._book)
        mesh.subscribe("order.paid", "ledger").handle(self._book)

    def order_work(self, tick: int) -> None:
        """A quarter of an hour: more by day than by night."""
        mesh, dice = self._mesh, self._dice
        busy = 0.5 - 0.5 * math.cos(2 * math.pi * tick * TICK_S / DAY_S)
        for _ in range(1 + int(busy * dice.uniform(3, 9))):
            self._planner.send(
                "coder",
                {"do": "bump-dependencies"},
                type="task",
                priority=dice.choices((1, 2, 3, 4, 5), (1, 3, 8, 3, 1))[0],
                trace=f"00-{dice.getrandbits(128) | 1:032x}-{dice.getrandbits(64) | 1:016x}-01",
                extra=self._usage(900),
                delay_ms=dice.choice((0, 0, 0, 0, 60_000)),
                ttl=0,
            )
        for _ in range(int(busy * 3)):
            mesh.publish(dice.choice(("order.created", "order.paid")), {"order": tick}, sender="planner")
        if tick % 12 == 5:
            self._planner.send("importer", {"row": tick}, type="row")
        if tick % 24 == 9:
            self._planner.send("archive", {"tick": tick}, ttl=600)
        if tick % 32 == 20:
            self._planner.send("scraper", {"page": tick}, ttl=0)
            self._scraper.receive_many(1)  # and never a word again: the lease runs out

    def order_releases(self, tick: int) -> None:
        """A release every three hours by day, and hotfixes, one of which is not wanted any more."""
        if 24 <= tick <= 76 and tick % 12 == 0:
            self._mesh.submit(RELEASE, {"tick": tick}, key=self._key(), owner="planner")
        if tick % 32 == 30:
            fix = self._mesh.submit(HOTFIX, {"tick": tick}, key=self._key(), owner="planner")
            if tick == 30:
                fix.cancel("mended by hand")

    def _key(self) -> str:
        return f"{self._dice.getrandbits(64):016x}"

    def burst(self, messages: int) -> None:
        """Everything at once, while no handler runs."""
        self._coder.open_breaker()
        for begin in range(0, messages, 100):
            count = min(100, messages - begin)
            self._planner.send_many([{"to": "coder", "content": {"do": "rename"}, "ttl": 0}] * count)
            self._advance(20)
        self._advance(TICK_S)
        self._coder.close_breaker()

    def bad_batch(self) -> None:
        """Input that no handler can use."""
        rows = [{"to": "importer", "content": {"row": n}, "type": "bad_row"} for n in range(BAD_BATCH)]
        self._planner.send_many(rows)

    def evening(self) -> None:
        """Silent work is taken up again; some dead letters are redriven, some purged, some stay."""
        for delivery in self._scraper.receive_many(10):
            delivery.ack()
        letters = self._mesh.dead_letters()
        self._mesh.redrive([each for each in letters if each.code == TIMEOUT][:10])
        self._mesh.purge_dead_letters([each for each in letters if each.code == INVALID][:5])
        self._advance(60)

    def leave_work_for_tomorrow(self) -> None:
        self._mesh.submit(BACKUP, key=self._key(), owner="planner")
        self._advance(60)
        for hours in (2, 4, 8):
            self._planner.send("coder", {"do": "later"}, type="task", delay_ms=hours * 3_600_000, ttl=0)

    # -- what the agents do

    def _code(self, delivery: Delivery) -> None:
        self._advance(self._dice.lognormvariate(0, 0.8))
        if self._fails(delivery, OUTAGE_SHARE if self.outage else FAILURE_SHARE):
            return
        if delivery.type == "task":
            self._coder.send(
                "tester",
                {"run": "tests"},
                type="check",
                priority=delivery.priority,
                correlation_id=delivery.id,
                trace=delivery.trace,
                extra=self._usage(4_000),
            )

    def _step(self, delivery: Delivery) -> None:
        """A step of a workflow, by any of its agents."""
        agent = delivery.receiver.rpartition("/")[2]
        self._advance(SECONDS[agent] * self._dice.lognormvariate(0, 0.5))
        if delivery.input == NO_ROOM:
            delivery.nack(NO_ROOM, code=TIMEOUT)
        elif agent == "shipper" and self._dice.random() < 0.35:
            delivery.nack("the registry is closed", code=TIMEOUT)
        elif agent == "writer" and self._dice.random() < 0.2:
            delivery.fail("nothing to write about", code="empty", usage=self._spent(agent))
        elif not self._fails(delivery, OUTAGE_SHARE / 2 if self.outage else FAILURE_SHARE):
            result = ["linux", "macos", "windows"] if agent == "architect" else {"by": agent}
            delivery.finish(result, usage=self._spent(agent))

    def _spent(self, agent: str) -> dict[str, Any]:
        """Slow work uses more of the model."""
        tokens = int(SECONDS[agent] * self._dice.uniform(50, 150))
        return {"cost_usd": round(tokens * 6e-6, 6), "tokens": tokens}

    def _test(self, delivery: Delivery) -> None:
        self._advance(self._dice.uniform(0.2, 4))
        if not self._fails(delivery, FAILURE_SHARE) and self._dice.random() < 0.02:
            delivery.drop()  # nothing to test

    def _import(self, delivery: Delivery) -> None:
        self._advance(0.2)
        if delivery.type == "bad_row" or self._dice.random() < 0.5:
            delivery.nack("no such column", code=INVALID)

    def _book(self, delivery: Delivery) -> None:
        self._advance(self._dice.uniform(0.05, 0.3))
        self._fails(delivery, 0.02)

    def _fails(self, delivery: Delivery, share: float) -> bool:
        if self._dice.random() >= share:
            return False
        code = TIMEOUT
        if not self.outage:
            code = self._dice.choices(tuple(FAILURES), tuple(FAILURES.values()))[0]
        delivery.nack(ERRORS[code], code=code)
        return True

    def _usage(self, tokens: int) -> dict[str, Any]:
        taken, made = int(tokens * self._dice.uniform(0.5, 2)), int(tokens * self._dice.uniform(0.1, 0.4))
        cost = round(taken * 3e-6 + made * 15e-6, 6)
        return {"usage": {"inputTokens": taken, "outputTokens": made, "costUsd": cost}}
