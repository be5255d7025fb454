"""ask, answer: a question to an agent and its answer, from the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from relaymesh.cli import options
from relaymesh.cli.commands import mesh_command
from relaymesh.cli.content import read_content
from relaymesh.cli.messages import mailbox_address, require_mailbox, unknown_mailbox
from relaymesh.cli.options import Call, given_fields, priority_of
from relaymesh.errors import Empty, NotFound, UnknownRecipient
from relaymesh.sdk.agent import Agent
from relaymesh.sdk.delivery import Delivery

LOOKED_THROUGH_MAX = 1_000
"""Messages that `answer` takes to find its question. The others go back unburned."""


@mesh_command
def ask(
    call: Call,
    to: Annotated[str, typer.Argument(metavar="TO", help="The agent that is asked.")],
    content: options.Content,
    sender: options.Sender = "cli",
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait for the answer.")
    ] = 60,
    id: options.Id = None,
    priority: options.Priority = None,
    task: options.Task = None,
    content_json: options.AsJson = False,
    content_text: options.AsText = False,
) -> None:
    """Ask an agent a question, and print its answer.

    The question is durable. With --id you can ask it again after an interruption: an answer that came
    meanwhile is printed at once.
    """
    value = read_content(content, call.output, as_json=content_json, as_text=content_text)
    fields = given_fields(id=id, priority=priority_of(priority), task=task)
    with call.mesh() as mesh:
        address = mesh._names.agent(to, "recipient")
        if not call.remote:
            require_mailbox(mesh, address)  # before the sender's mailbox is made
        try:
            answer = mesh.agent(sender).ask(to, value, timeout=timeout, **fields)
        except UnknownRecipient:
            raise unknown_mailbox(address, ()) from None
    call.output.record({"id": answer.id, "from": answer.sender, "content": answer.content})


@mesh_command
def answer(
    call: Call,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The agent that was asked.")],
    content: options.Content,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The question; else the first that waits.")
    ] = None,
    content_json: options.AsJson = False,
    content_text: options.AsText = False,
) -> None:
    """Answer a question that waits for an agent: ack it and send the answer, in one step.

    Other messages of the mailbox stay as they are. `relaymesh inbox NAME` shows what waits.
    """
    value = read_content(content, call.output, as_json=content_json, as_text=content_text)
    with call.mesh() as mesh:
        agent = Agent(mesh, mailbox_address(name, mesh._names))
        try:
            deliveries = agent.receive_many(LOOKED_THROUGH_MAX)
        except UnknownRecipient:
            raise unknown_mailbox(agent.address, mesh.stats().mailboxes) from None
        question = _question(deliveries, name, id)
        receipt = agent.answer(question, value)
    call.output.record(
        {"id": receipt.id, "question": question.id, "to": question.reply_to or question.sender}
    )


def _question(deliveries: list[Delivery], name: str, id: str | None) -> Delivery:
    wanted = [each for each in deliveries if (each.type == "question" if id is None else each.id == id)]
    if wanted:
        return wanted[0]
    if id is None:
        raise Empty(f"no question waits for {name}")
    raise NotFound(f"no message {id!r} waits for {name}", hint=f"relaymesh inbox {name} shows what waits")
