"""What leaves before it is safe."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from typing import Any

from relaymesh.journal.writer import Writer
from relaymesh.kernel import delivery, settlement
from relaymesh.kernel.commands import Publish, Redrive, Send, Settle
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.kernel import DECISIONS
from relaymesh.kernel.request import Command
from relaymesh.kernel.step import Receipt
from relaymesh.node.core import Core
from relaymesh.node.release import Marks
from relaymesh.testing.planted.bug import Original, at, plant


@plant(
    at(Core, "passed"),
    broken="a receipt leaves when its record is written, not when it is synced",
    like="NATS: ack before fsync",
)
def receipt_before_sync(original: Original, core: Core, needs: Marks) -> bool:
    return needs[0] <= core.written


@plant(
    at(Core, "_sync"),
    broken="answers leave while the sync that covers them is still running",
    like="etcd #14370: ack in parallel with the log write",
)
def receipt_beside_sync(original: Original, core: Core) -> None:
    core.synced = core.written
    core._hand_over()
    original(core)


@plant(at(Decision, "after_sync"), broken="an answer does not wait for the disk at all")
def receipt_before_write(original: Original, decision: Decision) -> None:
    pass


@plant(at(delivery, "_grant"), broken="a message is delivered before its own record is synced")
def delivery_before_sync(original: Original, *arguments: Any) -> Any:
    leases, _ = original(*arguments)
    return leases, 0


@plant(
    at(DECISIONS, Send, Publish),
    broken="a duplicate gets its receipt while the first one still waits for the sync",
    like="Redpanda #3039: idempotence does not hold under pause and kill",
)
def duplicate_receipt_before_sync(
    original: Original, decision: Decision, command: Command[Any]
) -> list[Receipt]:
    receipts: list[Receipt] = original(decision, command)
    if all(receipt.duplicate for receipt in receipts):
        decision.step.written = decision.step.synced = 0
    return receipts


@plant(at(settlement, "_exit"), broken="`dead_letter` is answered before the dead letter is synced")
def letter_before_sync(original: Original, decision: Decision, *arguments: Any) -> Any:
    answer = original(decision, *arguments)
    decision.step.synced = 0
    return answer


@plant(at(DECISIONS, Settle), broken="ack-and-send is answered before it is synced")
def settle_before_sync(original: Original, decision: Decision, command: Settle) -> Any:
    receipts = original(decision, command)
    decision.step.synced = 0
    return receipts


@plant(at(DECISIONS, Redrive), broken="a redrive is answered before it is synced")
def redrive_before_sync(original: Original, decision: Decision, command: Redrive) -> Any:
    sequences = original(decision, command)
    decision.step.synced = 0
    return sequences


@plant(at(Writer, "_sync"), broken="a frame written while a sync runs counts as covered by it")
def sync_covers_later_frames(original: Original, writer: Writer) -> None:
    original(writer)
    if writer._synced != writer._written:
        writer._synced = writer._written
        writer._write_mark()
