"""A journal of tasks written by hand, record by record: sound, or with something broken in it.

desk = Desk()
desk.submit("t", CHAIN)
desk.do("t", 0, b"1")
desk.do("t", 1, b"2")
desk.over("t", b"2")
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from relaymesh.journal.frame import DATA, Frame
from relaymesh.kernel import records
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.tasks.plan import Plan, StepPlan
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.token import TOKEN_COUNTER_BITS
from relaymesh.pipeline.source.events import EventBatch
from relaymesh.wire.records import encode_records
from tests.pipeline.source.journals import T0

if TYPE_CHECKING:
    from tests.pipeline.tables.journal import Row

BOX = "default/worker"


def step(name: str, *needs: int, **fields: object) -> StepPlan:
    return StepPlan(name=name, mailbox=BOX, needs=needs, **fields)  # type: ignore[arg-type]


def plan(*steps: StepPlan) -> Plan:
    return Plan(name="work", steps=steps)


CHAIN = plan(step("a"), step("b", 0))
PAIR = plan(step("a"), step("b"))
FAN = plan(step("a"), step("b", 0, for_each="items"))
UNDONE = plan(step("a", undo=step("a")), step("b"))
HANDLED = plan(step("a", on_failure="handle", handler=1), step("b", 0))


class Desk:
    """Each method is what a node would write at once. Answers what later records name."""

    def __init__(self) -> None:
        self.records: list[AnyRecord] = []
        self.sequence = 1
        self.at = T0
        self.token = 1 << TOKEN_COUNTER_BITS
        self.messages: dict[tuple[str, int], int] = {}
        """By task and step: the last message."""
        self.grants: dict[int, int] = {}
        """By message: how often it was granted."""
        self.write(records.EpochStarted(1, self.at, 1))
        self.write(records.MailboxOpened(1, self.at, BOX, MailboxSettings()))

    def write(self, record: AnyRecord) -> int:
        """Answers the sequence of its first event."""
        base = self.sequence
        self.records.append(record)
        self.sequence += record.count
        self.at += 1_000
        return base

    def submit(self, task: str, plan: Plan) -> None:
        self.write(records.TaskSubmitted(1, self.at, task, plan, b"null", task, b"", "default/owner"))

    def send(self, task: str, number: int) -> int:
        minted = f"m-{self.sequence}"
        envelope = Envelope(minted, "default/relaymesh", b"null", type="task_assign", ttl_ms=0)
        message = self.write(records.Accepted(1, self.at, BOX, [envelope]))
        self.write(records.StepsSent(1, self.at, task, BOX, [message], [number]))
        self.messages[task, number] = message
        return message

    def grant(self, task: str, number: int) -> int:
        self.token += 1
        message = self.messages[task, number]
        self.grants[message] = self.grants.get(message, 0) + 1
        self.write(records.Granted(1, self.at, BOX, "w", self.token, [message]))
        return self.token

    def lose(self, task: str, number: int) -> None:
        """The lease runs out."""
        message = self.messages[task, number]
        failure = records.Failure(self.grants[message], self.at, "timeout", "lease ran out")
        self.write(records.Returned(1, self.at, BOX, "expired", [message], [self.at], [failure]))

    def end(
        self, task: str, number: int, output: bytes | None, token: int = 0, status: Status = "SUCCESS"
    ) -> None:
        outputs = [] if output is None else [output]
        self.write(records.StepsEnded(1, self.at, task, [number], status, outputs, token))

    def ack(self, task: str, number: int) -> None:
        self.write(records.Acked(1, self.at, BOX, [self.messages[task, number]]))

    def do(self, task: str, number: int, output: bytes = b"null") -> None:
        """A step from its send to its end."""
        self.send(task, number)
        self.end(task, number, output, self.grant(task, number))
        self.ack(task, number)

    def fan(self, task: str, number: int, items: int) -> None:
        self.write(records.StepsAdded(1, self.at, task, number, [b"0"] * items))

    def over(self, task: str, result: bytes = b"null", status: Status = "SUCCESS") -> None:
        self.write(records.TaskEnded(1, self.at, task, status, result))

    def rows(self, partition: int) -> list[Row]:
        """As bronze shows them."""
        return rows_of(self.records, partition)


def rows_of(written: Iterable[AnyRecord], partition: int, first: int = 1) -> list[Row]:
    """Records as bronze shows them, decoded as frames of a journal are."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from relaymesh.pipeline.schema.bronze import EVENTS

    batch = EventBatch(to_arrow_schema(EVENTS, timezone="UTC"), "data", partition, content=False)
    sequence, epoch = first, 1
    for record in written:
        if isinstance(record, records.EpochStarted):
            epoch = record.epoch
        payload = encode_records([record])
        batch.add(Frame(DATA, 0, epoch, record.count, sequence, 0, 0, 0, 0, payload, "00000001.rmj", 64))
        sequence += record.count
    found: list[Row] = batch.finish().to_pylist()
    return found
