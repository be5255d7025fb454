"""Answers to `POST /v1/messages` and `POST /v1/topics/{topic}/messages`.

The request is one message (an object) or a batch (an array of them), as the Mailbox protocol has it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from relaymesh.wire.api.base import Answer, Time


class ReceiptBody(Answer, frozen=True, gc=False):
    """The message is in the mesh's hands: delivered, dead-lettered with a reason, or still pending."""

    message_id: Annotated[str, Meta(description="The id given by the sender, or made here.")]
    sequence: Annotated[int, Meta(description="The event that accepted it.")]
    duplicate: Annotated[
        bool, Meta(description="The same id was accepted before; this is the receipt of that one.")
    ] = False
    targets: Annotated[
        int, Meta(description="Mailboxes it went to; 0 for a topic without a subscription.")
    ] = 1
    scheduled_delivery_time: Time | UnsetType = UNSET
    notes: (
        Annotated[list[str], Meta(description="What was not taken literally, such as a negative delay.")]
        | UnsetType
    ) = UNSET
    task: Annotated[str, Meta(description="Of a task message to `relaymesh`: its task.")] | UnsetType = UNSET
    status: (
        Annotated[str, Meta(description="The state of that task after a submit or the end of a step.")]
        | UnsetType
    ) = UNSET


class ReceiptsAnswer(Answer, frozen=True):
    """Receipts of a batch, in the order of its messages. A batch is accepted whole or not at all."""

    receipts: list[ReceiptBody]
