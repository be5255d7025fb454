"""One error tree. Each error says whose fault it is, what happened, and what to do next.

Every error carries four things a tired reader needs: `code` (stable, for programs),
the message (what happened, to which mailbox, message or file), `hint` (the next thing
to do) and `retryable` (whether the same call may succeed later, unchanged).

    MeshError
    ├── SenderError            the call was wrong: repeating it unchanged cannot help
    │   ├── InvalidEnvelope        INVALID_MESSAGE
    │   ├── InvalidValue           INVALID_VALUE
    │   ├── PayloadTooLarge        PAYLOAD_TOO_LARGE
    │   ├── UnknownRecipient       UNKNOWN_RECIPIENT
    │   ├── Conflict               CONFLICT
    │   ├── InvalidSettings        INVALID_SETTINGS
    │   ├── InvalidPlan            INVALID_PLAN
    │   ├── NotFound               NOT_FOUND
    │   ├── TaskOver               TASK_ENDED
    │   └── Unauthorized           UNAUTHORIZED
    ├── Refused                the mesh is at a limit: the same call may work later
    │   ├── MailboxFull            MAILBOX_FULL
    │   ├── DeadLettersFull        DEAD_LETTERS_FULL
    │   ├── OverBudget             OVER_BUDGET
    │   ├── SignalsFull            SIGNALS_FULL
    │   ├── DiskFloor              DISK_FLOOR
    │   ├── StoreLagging           STORE_LAGGING
    │   └── RateLimited            RATE_LIMITED
    ├── Unreachable            UNREACHABLE: the node did not answer; the outcome of a send is unknown
    ├── LeaseLost              LEASE_LOST: the lease ended; another receiver may hold the message
    ├── NoAnswer               NO_ANSWER: a question ended without an answer
    ├── TaskFailed             TASK_FAILED: a task ended in any other way than success
    ├── Closed                 CLOSED: this mesh was closed, or belongs to another process or event loop
    └── DirectoryError         the data directory cannot be used
        ├── DirectoryInUse         DIRECTORY_IN_USE
        ├── JournalPoisoned        JOURNAL_POISONED
        ├── JournalDamaged         JOURNAL_DAMAGED
        ├── RecordUnreadable       RECORD_UNREADABLE
        ├── AsideInvalid           ASIDE_INVALID
        ├── FormatTooNew           FORMAT_TOO_NEW
        └── StoreMisconfigured     STORE_MISCONFIGURED

`Empty` is `queue.Empty`'s child, so code written for `queue.Queue` keeps working.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "AsideInvalid",
    "Closed",
    "Conflict",
    "DeadLettersFull",
    "DirectoryError",
    "DirectoryInUse",
    "DiskFloor",
    "Empty",
    "FormatTooNew",
    "InvalidEnvelope",
    "InvalidPlan",
    "InvalidSettings",
    "InvalidValue",
    "JournalDamaged",
    "JournalPoisoned",
    "LeaseLost",
    "MailboxFull",
    "MeshError",
    "NoAnswer",
    "NotFound",
    "OverBudget",
    "PayloadTooLarge",
    "RateLimited",
    "RecordUnreadable",
    "Refused",
    "SenderError",
    "SignalsFull",
    "StoreLagging",
    "StoreMisconfigured",
    "TaskFailed",
    "TaskOver",
    "Unauthorized",
    "UnknownRecipient",
    "Unreachable",
]


MESSAGE_CHARACTERS_MAX = 2_000
"""The longest error message: it may quote a value of any length that a caller sent."""


class MeshError(Exception):
    """Everything RelayMesh raises on purpose, except `Empty`."""

    code: ClassVar[str] = "MESH_ERROR"
    retryable: ClassVar[bool] = False
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        if message.__class__ is str and len(message) > MESSAGE_CHARACTERS_MAX:
            message = f"{message[:MESSAGE_CHARACTERS_MAX]}…"
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class SenderError(MeshError):
    """The call was wrong; nothing was written."""


class InvalidEnvelope(SenderError):
    """A field of a message, a name, or a part of a request has the wrong type or lies outside its bounds."""

    code = "INVALID_MESSAGE"
    default_hint = "nothing was written; correct the named value and call again"


class InvalidValue(SenderError):
    """An argument that is not a field of a message has the wrong type or lies outside its bounds."""

    code = "INVALID_VALUE"
    default_hint = "nothing was changed; correct the named value and call again"


class PayloadTooLarge(SenderError):
    """The content or the body has more bytes than the limit that the message names."""

    code = "PAYLOAD_TOO_LARGE"
    default_hint = "send a reference (a path or a URL) in place of the data, or raise payload_bytes_max"


class UnknownRecipient(SenderError):
    """The mesh has no mailbox of this name."""

    code = "UNKNOWN_RECIPIENT"
    default_hint = (
        "check the spelling, or open the mailbox first: mesh.agent(name), over HTTP PUT /v1/mailboxes/{name}"
    )


class Conflict(SenderError):
    """The call contradicts what exists: an id with other content, a directory in use for something else."""

    code = "CONFLICT"
    default_hint = "use a new id for new content; the same id must carry the same content"


class InvalidSettings(SenderError):
    """A setting, an argument of `Mesh` or an option has the wrong type or lies outside its bounds."""

    code = "INVALID_SETTINGS"
    default_hint = "docs/reference/settings.md and sdk.md have names, ranges and defaults"

    def __init__(self, message: str, *, hint: str | None = None, keys: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.keys = tuple(keys)
        """Of a settings file: the names it is about."""


class InvalidPlan(SenderError):
    """A workflow cannot run as it is written: the message names the step and the field."""

    code = "INVALID_PLAN"
    default_hint = "nothing was submitted; relaymesh workflow check FILE tells the same without a mesh"


class NotFound(SenderError):
    """The call names a dead letter, an agent, a subscription, a path or a file that does not exist."""

    code = "NOT_FOUND"
    default_hint = "check the name: relaymesh status, agent list and dlq list show what exists"


class TaskOver(SenderError):
    """The task has ended, or its failure was dealt with: nothing more can be done in it."""

    code = "TASK_ENDED"
    default_hint = "relaymesh task show ID tells how it ended; submit it again to run it anew"


class Unauthorized(SenderError):
    """There is no valid credential; `authenticated`: the credential is valid but does not allow this call."""

    code = "UNAUTHORIZED"
    default_hint = "pass a token that allows it: relaymesh token create makes one, token list shows scopes"

    def __init__(self, message: str, *, hint: str | None = None, authenticated: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.authenticated = authenticated


class Refused(MeshError):
    """The mesh is at a limit; nothing was written."""

    retryable = True


class MailboxFull(Refused):
    """The mailbox holds as many messages or bytes as its settings allow."""

    code = "MAILBOX_FULL"
    default_hint = "let its consumer catch up, pass timeout= to wait for room, or raise its capacity"


class DeadLettersFull(Refused):
    """The mailbox holds as many dead letters as it may. It refuses messages until some are removed."""

    code = "DEAD_LETTERS_FULL"
    default_hint = "look at them: relaymesh dlq list; then redrive or purge them, or raise dead_letters_max"


class OverBudget(Refused):
    """The sender's budget is used up: its unsettled messages, dead letters and subscriptions count."""

    code = "OVER_BUDGET"
    default_hint = (
        "wait until receivers settle what you sent, have your dead letters purged, or raise the budget; "
        "acks and nacks always work"
    )


class SignalsFull(Refused):
    """The task keeps as many signals as it may that no step waits for yet."""

    code = "SIGNALS_FULL"
    default_hint = "send it again once a step waits for signals: relaymesh task show ID"


class DiskFloor(Refused):
    """The disk of the data directory has too little free space to accept messages."""

    code = "DISK_FLOOR"
    default_hint = (
        "free space on the data directory's disk; acks and reads still work, sends resume by themselves"
    )


class StoreLagging(Refused):
    """The SQLite tables are further behind the journal than `store_lag_max` allows."""

    code = "STORE_LAGGING"
    default_hint = "the SQLite projection is behind; slow down, or see relaymesh doctor"


class RateLimited(Refused):
    """Too many writes in too short a time. `retry_after`: seconds to wait before the next try."""

    code = "RATE_LIMITED"
    default_hint = "slow down, send in batches, or raise the limit: relaymesh serve --write-rate"

    def __init__(self, message: str, *, hint: str | None = None, retry_after: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Unreachable(MeshError):
    """The node did not answer in time. A send may have been accepted: repeat it with the same id."""

    code = "UNREACHABLE"
    retryable = True
    default_hint = "see whether the node runs: relaymesh status; sending again with the same id is safe"


class LeaseLost(MeshError):
    """The token is no longer valid: the lease expired, was settled, or has a new holder."""

    code = "LEASE_LOST"
    default_hint = "discard this result; the message is delivered again, or was settled by its new holder"


class NoAnswer(MeshError):
    """A question ended in a terminal state that is not an answer."""

    code = "NO_ANSWER"
    default_hint = "wait longer, or ask again with the same id: that takes an answer which came late"


class TaskFailed(MeshError):
    """A task that a caller waits for ended as FAILED, TIMEOUT or CANCELLED; the message has the reason."""

    code = "TASK_FAILED"
    default_hint = "task.show() has the state of every step; submit it again with again=True to run it anew"


class Closed(MeshError):
    """The mesh is closed, is not open yet, or was opened by another process or event loop."""

    code = "CLOSED"
    default_hint = "open a new Mesh; after fork() the child must open its own"


class DirectoryError(MeshError):
    """The data directory cannot be used as it is."""

    default_hint = "check the path, its permissions and its disk; relaymesh doctor looks at all three"


class DirectoryInUse(DirectoryError):
    """Another process uses this directory."""

    code = "DIRECTORY_IN_USE"
    retryable = True
    default_hint = "stop the other process, or give this one a directory of its own"


class JournalPoisoned(DirectoryError):
    """A write or sync failed. The outcome of calls without a receipt is unknown."""

    code = "JOURNAL_POISONED"
    default_hint = (
        "check the disk, then restart: recovery keeps everything receipted; send again with the same id"
    )


class JournalDamaged(DirectoryError):
    """Acknowledged data cannot be read back. Nothing was truncated or skipped."""

    code = "JOURNAL_DAMAGED"
    default_hint = "run relaymesh journal verify; restore the named file from a copy, do not delete it"


class RecordUnreadable(DirectoryError):
    """A record of a known operation cannot be read. Nothing was skipped and nothing was written."""

    code = "RECORD_UNREADABLE"
    default_hint = (
        "relaymesh journal set-aside --all shows each such record and what it named; "
        "with --yes --reason TEXT they are set aside and the next start skips them"
    )


class AsideInvalid(DirectoryError):
    """The file that lists the records set aside does not match this journal."""

    code = "ASIDE_INVALID"
    default_hint = (
        "put the aside.jsonl of this journal back, or move it away and run relaymesh journal set-aside --all"
    )


class FormatTooNew(DirectoryError):
    """The directory was written in a format that this version does not know."""

    code = "FORMAT_TOO_NEW"
    default_hint = "this directory was written by a newer RelayMesh; upgrade this one"


class StoreMisconfigured(DirectoryError):
    """The SQLite database cannot be opened with the settings that the store needs."""

    code = "STORE_MISCONFIGURED"
    default_hint = (
        "the database refused a required setting; check the file system, or run relaymesh store rebuild"
    )


class Empty(queue.Empty):
    """Nothing arrived within the timeout."""
