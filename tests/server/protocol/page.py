"""docs/reference/protocol.md, made from the tables the server itself uses.

`python -m tests.server.protocol.page` writes it, a test compares it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from relaymesh.kernel.envelope import Priority
from relaymesh.server import codes, presence, reliability
from relaymesh.server.roster import VERSIONS_SPOKEN
from relaymesh.wire import message, types
from relaymesh.wire.bodies import ORDERS, TaskAsks, TaskAssigned
from tests.project.reference import GENERATED, fields_with_words
from tests.project.tree import ROOT

PATH = ROOT / "docs/reference/protocol.md"

INTRODUCTION = """\
# Mailbox protocol 1.1

{generated}

JSON over HTTP and WebSocket; [an agent in any language](../howto/any-language.md) has it step by step.
`GET /` lists the documents of a node: `GET /openapi.json` describes the HTTP API, `GET /asyncapi.json` the
WebSocket, `GET /docs` shows the first to people, `GET /schemas/envelope.schema.json` (and `message`,
`task`, `agent`, `workflow`) are JSON Schemas of draft 2020-12. None of these needs a credential.

## Versions

A client says which version it speaks when it registers (`protocolVersion`). Spoken here: {versions}. Any
1.x is understood and answered in the older of the two; another major version is refused, with the versions
that are spoken.
"""

MESSAGE = """\
## The message

| field | what it is |
|---|---|
{fields}

### `metadata`

| field | what it is |
|---|---|
{metadata}

- `null` is as good as leaving a field out.
- **Unknown fields survive**, value for value, at the top as in `metadata`: a later version's fields pass
  through. A field that is given twice is refused, wherever it is. A name close to a known one (`delayms`) is
  kept too, and the receipt has a note about it.
- `delayMs` and `taskId` may stand at the top as in `metadata`; two different values are refused.
- `content` is any JSON value and is kept byte for byte. Refused: NaN, numbers out of range, nesting beyond
  64, invalid UTF-8, lone surrogates, keys that occur twice, more bytes than `payload_bytes_max` (10 MiB).
- Bytes: `metadata.contentEncoding` is `base64`, and `content` a string.
- `priority` may be written 3 or 3.0; other integers of the protocol must have no decimal point.
- What only the mesh can know is ignored from a sender: `retryCount`, `originId`, and the fields of a lease
  on a message that is sent on.
- Idempotency: the same `id` to the same recipient within 24 hours is the same message (`duplicate: true`);
  the same `id` with other content is `CONFLICT`.

A delivery is the message and its lease: its token, which settles it, the attempt, the deadline, the mailbox
and the sequence that accepted it.
"""

WEBSOCKET = """\
## The WebSocket

`/v1/ws` with the subprotocol `relaymesh.v1.json` (text frames). One frame is one operation: `op` says which,
`ref` joins an answer to its question. The first frame is `hello`; the answer is `welcome`. The credential is
the header Authorization of the handshake, or, where none can be sent (in a browser), `token` in `hello`.

- A message keeps fields that the protocol does not know. A frame does not: an unknown field of `receive`,
  `settle`, `call` or any other frame is refused by its name.
- A frame with a missing, mistyped or unknown field is answered by a `problem` with its `ref`, and the
  connection goes on. Text that is not sound JSON is answered by a `problem` and ends the connection (1007):
  no answer could name its `ref`. A wrong `hello` ends it too (1002).
- An agent joins with `hello` (`agent`), or with the call `register`, which is `handshake.register`: it takes
  `agent`, `role`, `capabilities`, `protocolVersion`, `metadata` and `settles`, and its result is
  `handshake.ack`, the same object that `POST /v1/agents` answers with. A `heartbeat` is due every
  `heartbeatMs` of the `welcome`.
- `from` may be left out: a message is from the credential's agent. Of a credential that is no single agent,
  a reply is from the agent whose delivery it answers, and any other message from the `agent` of `hello`.
"""

TYPES = """\
## Types

| type | from | to | queued | priority | answered by | means |
|---|---|---|---|---|---|---|
{rows}

A type that is not in the table is refused, unless it is a name of your own with a dot in it, such as
`acme.deploy`; names that begin with `handshake.` or `relaymesh.` are the protocol's. Control frames (not
queued) are answered at once and never stored; `ack` and `nack` are put into mailboxes by the mesh alone.

### Directions

Directions are checked where messages come in from outside, by the roles agents registered with; a `Mesh`
inside a process sends any type to any agent. Roles: {roles}.

{directions}

## Priorities

| level | name |
|---|---|
{priorities}

`urgent` counts as CRITICAL and `medium` as NORMAL.
"""

TASKS = """\
## Tasks

The mesh itself has a name in each namespace: `relaymesh`. It sends each step of a task as a `task_assign`, and it
obeys task messages that are sent to it. These never lie in a mailbox; the receipt (`targets` 0, with `task` and
`status`) comes once what they did is durable. `task_*` messages between agents are mail as any other.

| message to `relaymesh` | does | from |
|---|---|---|
| `task_assign` | submits a task: a `workflow`, or one step for one `agent` | an agent with the role manager; the credential needs the scope `write` |
| `task_update` | shows `progress`, and renews the lease of the step | the agent of the step |
| `task_complete` | ends the step with its `result` | the agent of the step |
| `task_failed` | ends the step as FAILED; with `retryable`, tries it again | the agent of the step |
| `answer` | answers the question of a step, which goes on | the agent that was asked |

```
-> {{"type": "task_assign", "from": "default/relaymesh", "content": {{"task": "01a1…", "step": "build", "workflow": "release", "input": {{"repo": "acme"}}}}}}
<- {{"op": "settle", "ref": 7, "acks": ["0.1.7"]}}
<- {{"to": "relaymesh", "type": "task_update", "content": {{"task": "01a1…", "step": "build", "progress": 0.5}}}}
<- {{"to": "relaymesh", "type": "task_complete", "content": {{"task": "01a1…", "step": "build", "result": {{"version": "1.4"}}}}}}
```

| content | field | what it is |
|---|---|---|
{contents}

- **Ack of a step.** An agent that ends steps with a result registers with `settles: true`, as every client of the SDK
  does: its ack is the result `null`. The ack of any other registered agent means that it took the step: the step
  stays RUNNING under the same token until a report, or a settle with its result, ends it. In a mailbox of no registered agent an ack is
  the result `null`. `settles: true` in a settle makes the acks of that settle results.
- **Lease.** A step that was taken has a lease as long as `heartbeatTimeout` (90 s). Each heartbeat of the agent and each
  `task_update` renews it. Without either, the step is granted again. Heartbeats are of an agent, not of a
  process: give a step an `attempt_timeout` if a restarted agent forgets what it took.
- **Usage.** Reports may say what the attempt has used: `usage`, with `costUsd` and `tokens`. It is the total of the attempt, so a
  report that comes twice counts once. The task adds it up, and waits once its budget is used.
- **Questions of steps.** A step may ask an agent: the mesh sends it a `question` that names task and step. An `answer` to `relaymesh`
  with the id of that message as its `correlationId` is the answer, with its whole content; one that names `task` and `step` in its
  content has the answer in `answer`. Only the agent that was asked may answer, once, and with one of the `options`, if there are any.
- **Late reports** count while no other attempt began. `attempt` in a report (that of the delivery) refuses it if another
  one did.
- Refused: a task or step that is not there (`TASK_NOT_FOUND`), a step of another agent (`UNAUTHORIZED`), a step or task
  that ended (`TASK_ENDED`), a step that no holder has, or another attempt (`LEASE_LOST`), a result over 1 MiB
  (`PAYLOAD_TOO_LARGE`), an unknown, missing or mistyped field (`INVALID_MESSAGE`). The step stays as it was.
- Each is sent by itself, not in a batch, not as a reply and without `delayMs`. `requiresAck` sends nothing: the receipt
  is the answer.
- The key of a task is `key`, else the id of the message: the same message again is the same task.
"""  # noqa: E501 - a table and JSON

QUESTIONS = """\
## Questions and answers

A question has a `correlationId`; its answer carries the same. Receive by `correlationId` to wait for the
answer alone: the receive is given a message with that id, one that waits in the mailbox already included,
and it goes past everything else there. While such a receive waits, no other receiver is given the answer.

`expect` (`POST /v1/mailboxes/{mailbox}/expect`, or the call `expect` of a WebSocket) keeps answers apart
from before the question is sent until `unexpect`. A restart of the node forgets it: say it again when you
reconnect. Both look for waiting messages among the newest 10,000 of the mailbox.
"""


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def table(rows: Iterable[Sequence[object]]) -> str:
    return "\n".join("| " + " | ".join(cell(str(each)) for each in row) + " |" for row in rows)


def described(kind: type[msgspec.Struct]) -> str:
    """Fields of a message, with the words their types carry."""
    schema: dict[str, Any] = msgspec.json.schema(kind)["$defs"][kind.__name__]
    rows = [
        (f"`{name}`", shape.get("description") or shape.get("$ref") or "see below")
        for name, shape in schema["properties"].items()
    ]
    return table(rows)


def contents() -> Iterable[tuple[str, str, str]]:
    """The fields of what the mesh sends about a step, and of what it obeys."""
    kinds: list[tuple[str, type]] = [
        ("`task_assign` from the mesh", TaskAssigned),
        ("`question` from the mesh", TaskAsks),
    ]
    kinds += [(f"`{name}` to the mesh", kind) for name, kind in ORDERS.items()]
    for title, kind in kinds:
        defined: dict[str, Any] = msgspec.json.schema(kind)["$defs"][kind.__name__]
        for name, shape in defined["properties"].items():
            needed = ". Required" if name in defined.get("required", ()) else ""
            yield (
                title,
                f"`{name}`",
                shape.get("description", WORDS.get(name, "")).rstrip(".") + needed,
            )


WORDS = {
    "task": "As the `task_assign` names it",
    "step": "As the `task_assign` names it",
    "workflow": "The name of the workflow",
    "progress": "Text for people, or a number from 0 to 1",
    "usage": "What the attempt has used so far: `costUsd` in dollars, and `tokens`",
}


def after(docstring: str | None, word: str) -> str:
    """A docstring from this word on."""
    text = inspect.cleandoc(docstring or "")
    return text[text.index(word) :]


def page() -> str:
    rows = [
        (
            f"`{row.name}`",
            row.sender,
            row.recipient,
            "yes" if row.queued else "no",
            row.priority if row.queued else "",
            f"`{row.answered_by}`" if row.answered_by else "",
            row.meaning,
        )
        for row in types.MESSAGE_TYPES.values()
    ]
    settings = [
        (f"`{field.encode_name}`", default, words)
        for field, (_, _, default, words) in zip(
            msgspec.structs.fields(reliability.ReliabilityConfig),
            fields_with_words(reliability, "ReliabilityConfig"),
            strict=True,
        )
        for default in [field.default]
    ]
    parts = [
        INTRODUCTION.format(generated=GENERATED, versions=" and ".join(VERSIONS_SPOKEN)),
        MESSAGE.format(fields=described(message.Message), metadata=described(message.Metadata)),
        WEBSOCKET,
        TYPES.format(
            rows=table(rows),
            roles=", ".join(f"`{role}`" for role in types.ROLES),
            directions=after(types.__doc__, "| direction says"),
            priorities=table((level.value, level.name) for level in Priority),
        ),
        TASKS.format(contents=table(contents())),
        QUESTIONS,
        "## ACK and NACK\n\n" + after(codes.__doc__, "A sender that asked"),
        "## Presence\n\n" + after(presence.__doc__, "| state"),
        "## Reliability\n\n| setting | default | what it does |\n|---|---|---|\n" + table(settings),
        "## Error codes\n\n| code | HTTP status | same call may work later | when |\n|---|---|---|---|\n"
        + table(
            (
                f"**`{row.name}`**" if row.protocol else f"`{row.name}`",
                row.status or "in a nack only",
                "yes" if row.retryable else "no",
                row.when,
            )
            for row in codes.CODES
        )
        + "\n\nBold: the Mailbox protocol's own.",
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


if __name__ == "__main__":
    PATH.write_text(page(), encoding="utf-8")
