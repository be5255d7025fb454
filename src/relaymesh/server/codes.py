"""Error codes: the condition of each, its HTTP status, and whether the same call may work later.

The first six are the Mailbox protocol's; the others are this mesh's. Over HTTP a refusal is a problem
document with `code`, over the WebSocket a `problem` frame with the same code. A sender that asked with
`requiresAck` is also told by a message how its message ended:

- `ack`, once: when the receiver acked, or the failure contract counts its failure as done;
- `nack`, once: when the message became a dead letter, was dropped or expired. Never for an attempt that
  is tried again. The sender of a `question` is told in any case.

Both go to `replyTo`, else to the sender.

A receiver may nack with any code. The failure contract has rows for the protocol's: `INVALID_MESSAGE`,
`TASK_NOT_FOUND` and `UNAUTHORIZED` are never tried again, `RATE_LIMITED` five times, any other code three
times. Upper and lower case are the same.
"""

from __future__ import annotations

import msgspec

from relaymesh import errors
from relaymesh.errors import Refused, SenderError


class AgentBusy(Refused):
    """The agent takes no new tasks now."""

    code = "AGENT_BUSY"
    default_hint = "give the task to another agent, or wait until this one registers again"


class TaskNotFound(SenderError):
    """There is no such task, or it has no such step."""

    code = "TASK_NOT_FOUND"
    default_hint = "`task` and `step` are those of the content of the task_assign that the agent was given"


class Code(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    status: int
    """HTTP status; 0: the code occurs only inside a `nack` message."""
    retryable: bool
    when: str
    protocol: bool = False
    """Whether it is one of the Mailbox protocol's six."""


CODES: tuple[Code, ...] = (
    Code(
        "AGENT_BUSY", 409, True,
        "`task_assign` to an agent that is draining. In a nack: the receiver took the message and did not"
        " settle it in time, or its subscription was full",
        protocol=True,
    ),
    Code(
        "AGENT_OFFLINE", 0, True,
        "Only in a nack: no receiver took the message before its time to live ended. Mail to an offline agent"
        " waits until then",
        protocol=True,
    ),
    Code(
        "INVALID_MESSAGE", 400, False,
        "A field is missing, malformed or out of range; the content is not sound JSON; the type is unknown,"
        " a control frame, or goes in another direction",
        protocol=True,
    ),
    Code(
        "TASK_NOT_FOUND", 404, False,
        "A task message to `relaymesh` names a task or step that is not there. In a nack: a receiver refused"
        " a message of a task it does not know",
        protocol=True,
    ),
    Code(
        "UNAUTHORIZED", 401, False,
        "No valid credential (401), or one that does not allow this (403): another sender, another mailbox,"
        " another namespace",
        protocol=True,
    ),
    Code(
        "RATE_LIMITED", 429, True,
        "Too many writes of one credential, or too many bytes of it under way; `Retry-After`: when to retry",
        protocol=True,
    ),
    Code("HOST_REFUSED", 421, False, "`Host` is not a name of this server"),
    Code("ORIGIN_REFUSED", 403, False, "The request comes from a web page of another site"),
    Code("MALFORMED_REQUEST", 400, False, "The request, its path or a parameter is malformed"),
    Code("TOKEN_IN_URL", 400, False, "The URL contains a token: revoke it"),
    Code("HEADERS_TOO_LARGE", 431, False, "The headers of the request are over their limit"),
    Code("REQUEST_TIMEOUT", 408, True, "The body did not come in time"),
    Code("TOO_MANY_BODIES", 503, True, "All requests together have too many bytes under way"),
    Code("TOO_MANY_CONNECTIONS", 503, True, "No connection is free"),
    Code("COOKIE_REFUSED", 403, False, "A GET that writes carries a cookie"),
    Code("UNKNOWN_RECIPIENT", 404, False, "There is no mailbox of that name: it was never opened"),
    Code("NOT_FOUND", 404, False, "No such agent, message, dead letter, subscription or path"),
    Code("CONFLICT", 409, False, "The id was used before, with other content or by another sender"),
    Code("LEASE_LOST", 409, False, "The token is stale: the lease ended or was settled"),
    Code("PAYLOAD_TOO_LARGE", 413, False, "The content, or the whole body, is over its limit"),
    Code("MAILBOX_FULL", 429, True, "The mailbox, or a subscription of the topic, has no room"),
    Code("INVALID_VALUE", 400, False, "A value of the call has the wrong type, or lies outside its bounds"),
    Code("INVALID_PLAN", 400, False, "A workflow, or the input of a task, is wrong: the detail names it"),
    Code("TASK_ENDED", 409, False, "The task of the step has ended: there is nothing left to do for it"),
    Code("DEAD_LETTERS_FULL", 429, True, "The mailbox has too many dead letters: redrive or purge some"),
    Code("OVER_BUDGET", 429, True, "The node keeps too much for this sender; acks and nacks still work"),
    Code("SIGNALS_FULL", 429, True, "The task keeps too many signals for which no step waits yet"),
    Code("INVALID_SETTINGS", 400, False, "A setting of a mailbox or subscription is out of its range"),
    Code("METHOD_NOT_ALLOWED", 405, False, "The path exists, but not for this method"),
    Code("WRONG_CONTENT_TYPE", 415, False, "The body is not declared as JSON"),
    Code("STORE_LAGGING", 503, True, "The store is too far behind to take more"),
    Code("CLOSED", 503, False, "The node is stopping"),
    Code("JOURNAL_POISONED", 503, False, "The disk failed; the node must be started again"),
    Code("JOURNAL_DAMAGED", 500, False, "A requested part of the journal cannot be read"),
    Code("DISK_FLOOR", 507, True, "The disk is too full to accept messages; acks and reads still work"),
    Code("INTERNAL", 500, False, "A defect of the node: no request of a client may cause it"),
)  # fmt: skip

BY_NAME: dict[str, Code] = {row.name: row for row in CODES}


def classes() -> dict[str, type[errors.MeshError]]:
    """The classes of the error tree, by code."""
    kinds = [getattr(errors, name) for name in errors.__all__]
    return {kind.code: kind for kind in kinds if issubclass(kind, errors.MeshError)}
