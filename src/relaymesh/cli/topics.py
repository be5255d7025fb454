"""topic: publishing, subscribing, and what waits in subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from relaymesh.cli import options
from relaymesh.cli.asking import confirm
from relaymesh.cli.commands import mesh_command
from relaymesh.cli.content import read_content
from relaymesh.cli.looking import look
from relaymesh.cli.messages import print_receipt
from relaymesh.cli.options import Call, given_fields, priority_of
from relaymesh.cli.table import Column, short_address

app = typer.Typer(help="Publish to topics, subscribe to them, and see who subscribes.")

Pattern = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="A topic, as order.created, or a pattern, as order.* or order.**."),
]
Subscriber = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.")]


@app.command("pub")
@mesh_command
def publish(
    call: Call,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="For example order.created.")],
    content: options.Content,
    sender: options.Sender = "cli",
    id: options.Id = None,
    type: options.Type = "message",
    priority: options.Priority = None,
    task: options.Task = None,
    key: options.Key = None,
    delay_ms: options.DelayMs = 0,
    ttl: options.Ttl = 3600,
    tags: options.Tags = None,
    content_json: options.AsJson = False,
    content_text: options.AsText = False,
) -> None:
    """Publish a message to every subscriber of a topic."""
    value = read_content(content, call.output, as_json=content_json, as_text=content_text)
    fields = given_fields(
        id=id,
        type=type,
        priority=priority_of(priority),
        task=task,
        key=key,
        delay_ms=delay_ms,
        ttl=ttl,
        tags=tags,
    )
    with call.mesh() as mesh:
        receipt = mesh.agent(sender).publish(topic, value, **fields)
    print_receipt(call, receipt, topic=topic)
    if not receipt.targets:
        call.output.note(f"{topic} has no subscription: see relaymesh topic list")


SUBSCRIPTIONS = [
    Column("topic"),
    Column("subscription"),
    Column("pending", "number"),
    Column("leased", "number"),
    Column("dead_letters", "number"),
    Column("semantics"),
]


@app.command("list")
@mesh_command
def list_subscriptions(
    call: Call,
) -> None:
    """List the subscriptions and what waits in each. Works beside a running process."""
    with look(call) as seen:
        boxes = seen.mailboxes()

    def rows() -> Iterator[dict[str, Any]]:
        for address, box in boxes.items():
            topic, colon, subscription = address.partition(":")
            if colon:
                yield {
                    "topic": short_address(topic),
                    "subscription": subscription,
                    "pending": box.pending,
                    "leased": box.leased,
                    "dead_letters": box.dead_letters,
                    "semantics": box.delivery_semantics,
                }

    call.output.rows(SUBSCRIPTIONS, rows(), empty="no subscriptions yet: relaymesh topic sub TOPIC NAME")


@app.command("sub")
@mesh_command
def subscribe(
    call: Call,
    topic: Pattern,
    name: Subscriber,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Hand out one message at a time, in order.")
    ] = False,
    max_retries: options.MaxRetries = None,
    capacity: Annotated[
        int | None, typer.Option("--capacity", min=1, metavar="N", help="Messages it may hold.")
    ] = None,
) -> None:
    """Subscribe to a topic or a pattern. It gets what is published from now on.

    A second call only updates the settings. Receive from it with
    relaymesh inbox TOPIC:NAME --take N.
    """
    settings = given_fields(ordered=ordered or None, max_retries=max_retries, capacity=capacity)
    with call.mesh() as mesh:
        subscription = mesh.subscribe(topic, name, **settings)
    call.output.record({"topic": topic, "subscription": name, "mailbox": subscription.address})


@app.command("unsub")
@mesh_command
def unsubscribe(
    call: Call,
    topic: Pattern,
    name: Subscriber,
    yes: options.Yes = False,
) -> None:
    """End a subscription. The messages that it still holds are dropped."""
    with call.mesh() as mesh:
        confirm(f"end {topic}:{name} and drop the messages that wait in it?", yes=yes)
        dropped = mesh.unsubscribe(topic, name)
    call.output.record({"topic": topic, "subscription": name, "dropped": dropped})
