"""send, inbox: messages going in, and what waits to come out."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from relaymesh.cli import options
from relaymesh.cli.commands import mesh_command
from relaymesh.cli.content import read_content
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.inbox_answer import answer_inbox
from relaymesh.cli.looking import View, look
from relaymesh.cli.moments import span_text
from relaymesh.cli.nodes import node_of
from relaymesh.cli.options import Call, given_fields, priority_of
from relaymesh.cli.output import preview
from relaymesh.cli.table import Column, short_address
from relaymesh.errors import Empty, JournalDamaged, UnknownRecipient
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.pending import Pending
from relaymesh.sdk.agent import Inbox
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.mesh import Mesh
from relaymesh.sdk.names import Names
from relaymesh.sdk.receipt import Receipt
from relaymesh.wire.api import AgentsAnswer
from relaymesh.wire.content import decode_content


@mesh_command
def send(
    call: Call,
    to: Annotated[str, typer.Argument(metavar="TO", help="The agent that gets it.")],
    content: options.Content,
    sender: options.Sender = "cli",
    create: Annotated[bool, typer.Option("--create", help="Make the recipient's mailbox.")] = False,
    id: options.Id = None,
    type: options.Type = "message",
    priority: options.Priority = None,
    task: options.Task = None,
    key: options.Key = None,
    delay_ms: options.DelayMs = 0,
    ttl: options.Ttl = 3600,
    correlation_id: options.CorrelationId = None,
    reply_to: options.ReplyTo = None,
    requires_ack: options.RequiresAck = False,
    tags: options.Tags = None,
    max_retries: options.MaxRetries = None,
    content_json: options.AsJson = False,
    content_text: options.AsText = False,
) -> None:
    """Send a message to an agent. The receipt comes when the message is on disk.

    A JSON object or array is sent as such; anything else is text.
    """
    value = read_content(content, call.output, as_json=content_json, as_text=content_text)
    fields = given_fields(
        id=id,
        type=type,
        priority=priority_of(priority),
        task=task,
        key=key,
        delay_ms=delay_ms,
        ttl=ttl,
        correlation_id=correlation_id,
        reply_to=reply_to,
        requires_ack=requires_ack,
        tags=tags,
        max_retries=max_retries,
    )
    with call.mesh(create=create) as mesh:
        address = mesh._names.agent(to, "recipient")
        if create:
            mesh.agent(to)
        elif not call.remote:
            require_mailbox(mesh, address)  # before the sender's mailbox is made
        try:
            receipt = mesh.agent(sender).send(to, value, **fields)
        except UnknownRecipient:
            raise unknown_mailbox(address, _directory(call)) from None
    print_receipt(call, receipt, to=address)


@mesh_command
def inbox(
    call: Call,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An agent, or a subscription as TOPIC:SUBSCRIPTION.")
    ],
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Show at most N.")] = 50,
    take: Annotated[
        int | None, typer.Option("--take", min=1, metavar="N", help="Receive N, in the order of delivery.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Ack what was received; else all goes back.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long --take waits.")
    ] = 0,
    answer: Annotated[
        bool, typer.Option("--answer", help="Show and answer one message after another, at a terminal.")
    ] = False,
) -> None:
    """Show what waits in a mailbox, without taking it. Works beside a running process.

    With --take the messages are received and printed, which needs the directory. With --ack they are then
    acked; else they are given back, and no attempt is counted. With --answer each question, step and message
    is shown, and settled with what you type.
    """
    if answer:
        if take is not None or ack or timeout:
            raise UsageFailed("--answer goes without --take, --ack and --timeout", hint="leave them out")
        answer_inbox(call, _known_address(call, name), limit)
        return
    if take is not None:
        _take(call, name, take, ack, timeout)
        return
    if ack or timeout:
        raise UsageFailed("--ack and --timeout belong to --take", hint="add --take N")
    with look(call) as seen:
        boxes = seen.mailboxes()
        address = mailbox_address(name, seen.names)
        if address not in boxes and not call.remote:
            raise unknown_mailbox(address, boxes)
        try:
            entries = seen.pending(address, limit)  # a node says whether it may be looked at
        except UnknownRecipient:
            raise unknown_mailbox(address, boxes) from None
        call.output.rows(
            PENDING,
            (_entry_row(seen, entry) for entry in entries),
            empty=f"nothing waits for {short_address(address)}",
        )
    more = boxes[address].pending - len(entries) if address in boxes else 0
    if more > 0:
        call.output.note(f"{more} more: raise --limit")


def _known_address(call: Call, name: str) -> str:
    with look(call) as seen:
        boxes = seen.mailboxes()
        address = mailbox_address(name, seen.names)
    if address not in boxes and not call.remote:
        raise unknown_mailbox(address, boxes)
    return address


PENDING = [
    Column("id", "id"),
    Column("from", show=short_address),
    Column("type"),
    Column("priority", "number", title="prio"),
    Column("age", "number", span_text),
    Column("attempts", "number"),
    Column("state"),
    Column("content", "text", preview),
]

TAKEN = [
    Column("id", "id"),
    Column("from", show=short_address),
    Column("type"),
    Column("priority", "number", title="prio"),
    Column("attempt", "number"),
    Column("task"),
    Column("content", "text", preview),
]


def _entry_row(seen: View, entry: Pending) -> dict[str, Any]:
    envelope = entry.envelope
    return {
        "id": envelope.id,
        "from": envelope.sender,
        "type": envelope.type,
        "priority": entry.priority,
        "age": max(0, seen.now - entry.accepted_at) / 1000,
        "attempts": entry.attempts,
        "state": seen.state_name(entry),
        "content": _content(envelope),
    }


def _content(envelope: Envelope) -> Any:
    try:
        return decode_content(envelope.content, envelope.encoding)
    except JournalDamaged as error:  # the other entries are shown all the same
        return {"error": error.message}


def _take(call: Call, name: str, count: int, ack: bool, timeout: float) -> None:
    output = call.output
    with call.mesh() as mesh:
        address = mailbox_address(name, mesh._names)
        try:
            deliveries = Inbox(mesh, address).receive_many(count, timeout)
        except UnknownRecipient:
            raise unknown_mailbox(address, mesh.stats().mailboxes) from None
        if not deliveries and timeout:
            raise Empty(f"nothing arrived for {short_address(address)} within {timeout:g} s")
        output.rows(
            TAKEN, map(_delivery_row, deliveries), empty=f"nothing to take for {short_address(address)} now"
        )
        sys.stdout.flush()  # printed first: what was not shown must not be acked
        if ack and deliveries:
            mesh.ack_many(deliveries, durable=True)
    if deliveries:
        what = "acked: done for good" if ack else "given back: they wait as before"
        output.note(f"{len(deliveries)} taken and {what}")


def _delivery_row(delivery: Delivery) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "from": delivery.sender,
        "type": delivery.type,
        "priority": delivery.priority,
        "attempt": delivery.attempt,
        "task": delivery.task,
        "content": delivery.content,
    }


# -- names and receipts


def mailbox_address(name: str, names: Names) -> str:
    """The address of an agent's mailbox, or of a subscription's, written `topic:name`."""
    topic, colon, subscription = name.partition(":")
    return names.subscription(topic, subscription) if colon else names.agent(name)


def _directory(call: Call) -> list[str]:
    """Addresses of the agents that the node lets this credential see."""
    node = node_of(call)
    if node is None:
        return []
    with node:
        return [agent.address for agent in node.get("/v1/agents", AgentsAnswer).agents]


def unknown_mailbox(address: str, known: Iterable[str]) -> UnknownRecipient:
    """The error for a mailbox that is not there, with what was perhaps meant."""
    name = short_address(address)
    names = [short_address(each) for each in known]
    near = difflib.get_close_matches(name, names, n=3)
    meant = f"did you mean {' or '.join(near)}? " if near else ""
    return UnknownRecipient(
        f"there is no mailbox {name!r} in this mesh",
        hint=f"{meant}relaymesh send {name} CONTENT --create makes it",
    )


def require_mailbox(mesh: Mesh, address: str) -> None:
    known = mesh.stats().mailboxes
    if address not in known:
        raise unknown_mailbox(address, known)


def print_receipt(call: Call, receipt: Receipt, **target: str) -> None:
    call.output.record(
        {
            "id": receipt.id,
            **target,
            "sequence": receipt.sequence,
            "duplicate": receipt.duplicate,
            "targets": receipt.targets,
            "scheduled_at": receipt.scheduled_at,
        }
    )
    for note in receipt.notes:
        call.output.note(note)
