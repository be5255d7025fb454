"""From an error to one line and an exit code. `EXIT_CODES` is the only place that says which."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import IntEnum

import apsw
import typer

from relaymesh import errors
from relaymesh.errors import MeshError


class Exit(IntEnum):
    """What a script sees; `MEANINGS` says it in words."""

    OK = 0
    FAILED = 1
    USAGE = 2
    AUTH = 3
    NOT_FOUND = 4
    UNREACHABLE = 5
    TIMEOUT = 6
    PARTIAL = 7
    CONFLICT = 8
    CHECK_FAILED = 9
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "failed, or refused for now",
    Exit.USAGE: "the command or the message was wrong; nothing was written",
    Exit.AUTH: "this user, or this token, may not do that",
    Exit.NOT_FOUND: "no such mailbox, dead letter, journal or file",
    Exit.UNREACHABLE: "no node answers, or another process holds the data directory",
    Exit.TIMEOUT: "the time limit was reached first",
    Exit.PARTIAL: "some of it was done; the same command does the rest",
    Exit.CONFLICT: "a conflict with what exists, or a stale lease",
    Exit.CHECK_FAILED: "a check found something wrong",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}


class UsageFailed(MeshError):
    """The arguments do not fit together."""

    code = "USAGE"


class ConfirmationNeeded(UsageFailed):
    """There is no terminal to ask on."""

    code = "CONFIRMATION_NEEDED"


class Cancelled(MeshError):
    """The person at the terminal said no."""

    code = "CANCELLED"
    default_hint = "nothing was changed"


class Partial(MeshError):
    """It stopped half-way. What was done stays done, and is not done again."""

    code = "PARTIAL"
    retryable = True


class CheckFailed(MeshError):
    """The report is on stdout; this only says that it is not good."""

    code = "CHECK_FAILED"


class TaskTimedOut(errors.TaskFailed):
    """The task that is followed ended as TIMEOUT."""

    code = "TASK_TIMEOUT"


EXIT_CODES: dict[type[BaseException], Exit] = {
    errors.MeshError: Exit.FAILED,
    errors.InvalidEnvelope: Exit.USAGE,
    errors.InvalidValue: Exit.USAGE,
    errors.PayloadTooLarge: Exit.USAGE,
    errors.InvalidSettings: Exit.USAGE,
    errors.InvalidPlan: Exit.USAGE,
    errors.TaskOver: Exit.CONFLICT,
    errors.TaskFailed: Exit.FAILED,
    TaskTimedOut: Exit.TIMEOUT,
    errors.UnknownRecipient: Exit.NOT_FOUND,
    errors.NotFound: Exit.NOT_FOUND,
    errors.Unauthorized: Exit.AUTH,
    errors.Conflict: Exit.CONFLICT,
    errors.MailboxFull: Exit.FAILED,
    errors.DeadLettersFull: Exit.FAILED,
    errors.OverBudget: Exit.FAILED,
    errors.SignalsFull: Exit.FAILED,
    errors.DiskFloor: Exit.FAILED,
    errors.StoreLagging: Exit.FAILED,
    errors.RateLimited: Exit.FAILED,
    errors.Unreachable: Exit.UNREACHABLE,
    errors.LeaseLost: Exit.CONFLICT,
    errors.NoAnswer: Exit.TIMEOUT,
    errors.Closed: Exit.FAILED,
    errors.DirectoryInUse: Exit.UNREACHABLE,
    errors.JournalPoisoned: Exit.FAILED,
    errors.JournalDamaged: Exit.CHECK_FAILED,
    errors.FormatTooNew: Exit.FAILED,
    errors.RecordUnreadable: Exit.CHECK_FAILED,
    errors.AsideInvalid: Exit.CHECK_FAILED,
    errors.StoreMisconfigured: Exit.FAILED,
    errors.Empty: Exit.TIMEOUT,
    UsageFailed: Exit.USAGE,
    ConfirmationNeeded: Exit.USAGE,
    Cancelled: Exit.FAILED,
    Partial: Exit.PARTIAL,
    CheckFailed: Exit.CHECK_FAILED,
    PermissionError: Exit.AUTH,
    FileNotFoundError: Exit.NOT_FOUND,
    TimeoutError: Exit.TIMEOUT,
    OSError: Exit.FAILED,
    apsw.Error: Exit.FAILED,
}
"""By class; an error that is not listed has the row of its nearest parent."""


CODES: dict[type[BaseException], str] = {
    errors.Empty: "EMPTY",
    PermissionError: "PERMISSION_DENIED",
    FileNotFoundError: "NOT_FOUND",
    TimeoutError: "TIMEOUT",
    apsw.Error: "STORE_FAILED",
}
"""Codes of errors that are not ours. Another `OSError` has the name of its errno, such as ENOSPC."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is said about an error: the same four words for people and for programs."""

    code: str
    message: str
    hint: str
    retryable: bool
    exit: Exit

    def line(self) -> str:
        parts = [f"error: {self.code}: {self.message}"]
        if self.hint:
            parts.append(f"hint: {self.hint}")
        parts.append(f"retryable: {'yes' if self.retryable else 'no'}")
        return " ".join(" | ".join(parts).split())

    def fields(self) -> dict[str, object]:
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
        }


def failure_of(error: BaseException) -> Failure | None:
    """The failure to report, or None for an unforeseen error."""
    if isinstance(error, MeshError):
        denied = isinstance(error.__cause__, PermissionError)
        exit = Exit.AUTH if denied else _exit_code(error)
        return Failure(error.code, error.message, error.hint, error.retryable, exit)
    if isinstance(error, typer.TyperException):
        return _misused(error)
    if isinstance(error, errors.Empty):
        message, hint, retryable = str(error), "wait longer with --timeout, or try again", True
    elif isinstance(error, OSError):
        message, hint, retryable = _os_words(error)
    elif isinstance(error, apsw.Error):
        message, retryable = f"SQLite: {error}", False
        hint = "the journal still has everything: see relaymesh doctor, then relaymesh store rebuild"
    else:
        return None
    return Failure(_foreign_code(error), message, hint, retryable, _exit_code(error))


def _exit_code(error: BaseException) -> Exit:
    for kind in type(error).__mro__:
        if kind in EXIT_CODES:
            return EXIT_CODES[kind]
    return Exit.FAILED


def _misused(error: typer.TyperException) -> Failure:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "relaymesh"
    exit = Exit.USAGE if error.exit_code == Exit.USAGE else Exit.FAILED
    return Failure("USAGE", error.format_message(), f"{path} --help", False, exit)


def _foreign_code(error: BaseException) -> str:
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    number = error.errno if isinstance(error, OSError) else None
    return errno.errorcode.get(number or 0, "OS_ERROR")


def _os_words(error: OSError) -> tuple[str, str, bool]:
    """Message, hint, and whether trying again can help."""
    where = f"{error.filename}: " if error.filename else ""
    message = f"{where}{error.strerror or error}"
    if isinstance(error, PermissionError):
        return message, "check who owns it, or name another directory with --dir", False
    if isinstance(error, FileNotFoundError):
        return message, "check the path given with --dir", False
    retryable = isinstance(error, (TimeoutError, InterruptedError, BlockingIOError))
    return message, "check the disk and the path, then try again", retryable
