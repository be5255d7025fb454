"""The message types of Mailbox protocol 1.1: who sends each to whom, whether it is queued, what it means.

`MESSAGE_TYPES` is the whole table. A type that is not in it is refused, unless it is a name of one's
own with a dot in it (`acme.deploy`): such a message is queued, may go from any agent to any agent, and means
what its two ends agreed on.

Directions speak of roles. An agent declares one when it registers:

| direction says | it fits an agent whose role is |
|---|---|
| any, agent | any role: a manager is an agent too |
| manager | manager |
| developer, reviewer, tester | that role, or agent |

An agent that declared no role has the role `agent`, except the one called `manager`, which is the
manager of its namespace as long as it declares nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.address import name_of
from relaymesh.kernel.envelope import PRIORITY_BY_TYPE, PRIORITY_DEFAULT

Role = Literal["manager", "developer", "reviewer", "tester", "agent"]
"""What an agent may declare itself to be."""
End = Literal["any", "agent", "manager", "developer", "reviewer", "tester", "mesh"]
"""One end of a direction. `mesh`: the node itself, which no agent can speak for."""
RoleOf = Callable[[str], Role]
"""The role of the agent at an address."""

ROLES: tuple[Role, ...] = get_args(Role)
MANAGER_NAME = "manager"

CUSTOM_TYPE = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+"
RESERVED_PREFIXES = ("handshake.", "relaymesh.")
"""Dotted names that are the protocol's own: none of them can be a custom type."""
TYPE_LENGTH_MAX = 128

_custom = re.compile(CUSTOM_TYPE + r"\Z")


class MessageType(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    sender: End
    recipient: End
    meaning: str
    queued: bool = True
    """Whether it goes through a mailbox. Others are answered at once and leave no record."""
    answered_by: str = ""
    """The type that answers it, if one does."""

    @property
    def priority(self) -> int:
        """What counts when the message names no priority."""
        return PRIORITY_BY_TYPE.get(self.name, PRIORITY_DEFAULT)


def _control(name: str, sender: End, recipient: End, meaning: str, answered_by: str = "") -> MessageType:
    return MessageType(name, sender, recipient, meaning, queued=False, answered_by=answered_by)


_ROWS = (
    MessageType("task_assign", "manager", "agent", "Do this task"),
    MessageType("task_update", "agent", "manager", "How far a task is"),
    MessageType("task_complete", "agent", "manager", "A task is done; the content is its result"),
    MessageType("task_failed", "agent", "manager", "A task is given up; the content says why"),
    MessageType("message", "agent", "agent", "Anything else, and the type of a message that names none"),
    MessageType("question", "agent", "agent", "Wants an answer with its correlation id", True, "answer"),
    MessageType("answer", "agent", "agent", "An answer to the question whose correlation id it carries"),
    MessageType("notification", "any", "any", "For information; nothing is expected back"),
    MessageType(
        "code_review_request", "developer", "reviewer", "Look at this code", answered_by="code_review_result"
    ),
    MessageType("code_review_result", "reviewer", "developer", "What the reviewer found"),
    MessageType("test_request", "developer", "tester", "Test this", answered_by="test_result"),
    MessageType("test_result", "tester", "developer", "What the tests showed"),
    MessageType("status_report", "agent", "manager", "How an agent is doing"),
    MessageType("error", "agent", "manager", "Something went wrong that a person should see"),
    _control("heartbeat", "agent", "mesh", "I am here; 90 s without one is offline", answered_by="ack"),
    _control("ping", "any", "mesh", "Is this connection alive?", answered_by="pong"),
    _control("pong", "mesh", "any", "It is"),
    _control("ack", "mesh", "any", "Your message was acknowledged by its receiver"),
    _control("nack", "mesh", "any", "Your message was finally refused, or is a dead letter"),
    _control("handshake.register", "agent", "mesh", "I join, as this agent", answered_by="handshake.ack"),
    _control("handshake.ack", "mesh", "agent", "You joined; these are the terms"),
)

MESSAGE_TYPES: dict[str, MessageType] = {row.name: row for row in _ROWS}


def is_custom(name: str) -> bool:
    """Whether it is a name of one's own: words joined by dots, none of them ours."""
    if len(name) > TYPE_LENGTH_MAX or name.startswith(RESERVED_PREFIXES):
        return False
    return _custom.match(name) is not None


def check_queued(name: str) -> str:
    """A type that may go to a mailbox. Raises `InvalidEnvelope` for a control frame or an unknown name."""
    row = MESSAGE_TYPES.get(name)
    if row is not None:
        if row.queued:
            return name
        raise InvalidEnvelope(
            f"type {name!r} is a control frame and is never queued", hint=_instead(name, row.answered_by)
        )
    if is_custom(name):
        return name
    raise InvalidEnvelope(
        f"type {name[:TYPE_LENGTH_MAX]!r} is not a message type",
        hint="use one of docs/reference/protocol.md, or a name of your own with a dot in it: acme.deploy",
    )


def _instead(name: str, answered_by: str) -> str:
    if name in {"ack", "nack"}:
        return "settle the delivery instead; the mesh tells a sender that asked with requiresAck"
    if name.startswith("handshake."):
        return "register with POST /v1/agents or a hello frame"
    return f"send it over its own endpoint or frame, where {answered_by or 'nothing'} answers it"


def role_or_default(address: str, declared: Role | None) -> Role:
    """The role an agent has, given what it declared, if anything."""
    if declared is not None:
        return declared
    return "manager" if name_of(address) == MANAGER_NAME else "agent"


def fits(role: Role, end: End) -> bool:
    """Whether an agent of this role may stand at this end of a direction."""
    if end in {"any", "agent"}:
        return True
    return role == end or (role == "agent" and end not in {"manager", "mesh"})


def check_direction(name: str, sender: str, recipient: str | None, role_of: RoleOf) -> None:
    """Check that `sender` may send this type to `recipient`; None is a topic.

    Raises `InvalidEnvelope`, naming the role that is missing and how to declare it.
    """
    row = MESSAGE_TYPES.get(name)
    if row is None:
        return
    if row.sender not in {"any", "agent"} and not fits(role_of(sender), row.sender):
        raise _misdirected(name, row, sender, row.sender, role_of(sender))
    if recipient is None or row.recipient in {"any", "agent"}:
        return
    if not fits(role_of(recipient), row.recipient):
        raise _misdirected(name, row, recipient, row.recipient, role_of(recipient))


def _misdirected(name: str, row: MessageType, address: str, wanted: End, role: Role) -> InvalidEnvelope:
    return InvalidEnvelope(
        f"{name} goes from {row.sender} to {row.recipient}, and {address} is registered as {role}",
        hint=f"let {name_of(address)} register with role {wanted!r}, or use a type of your own: acme.{name}",
    )
