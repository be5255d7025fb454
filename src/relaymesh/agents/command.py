"""How an agent is started, and what it may use: values, checked when they are built."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import SECONDS_MAX, one_of, real, shown, whole

__all__ = ["Command", "Limits", "Unbounded", "checked_mark", "resolved"]

Unbounded = Literal["refuse", "run"]

ARGUMENTS_MAX = 1_000
ARGUMENT_LENGTH_MAX = 65_536
VARIABLES_MAX = 1_000
MIB = 1 << 20
BYTES_MAX = 1 << 40
PROCESSES_MAX = 1_000_000
TIME_S_MIN = 0.001

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"(?:env|file):[^\0]+", re.DOTALL)
_MARK = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@:-]{0,199}")


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """The program of an agent: a list of arguments, never a line for a shell."""

    argv: tuple[str, ...]
    """The program and its arguments. A program without a slash is looked up in the PATH of its environment.
    """
    env: dict[str, str] = {}
    """Variables with their values. Not for secrets: the declaration is a file that others may read."""
    secrets: dict[str, str] = {}
    """Variables with references: `env:NAME` (of the supervisor) or `file:PATH`. Read at each start."""
    pass_env: tuple[str, ...] = ()
    """Variables of the supervisor that the agent gets too. It always gets PATH, HOME, LANG and a few more.
    """
    user: str | None = None
    """Run as this user of the system. Needs root. With it, a bound on processes needs no cgroup."""

    def __post_init__(self) -> None:
        argv = _texts(self.argv, "argv", ARGUMENTS_MAX)
        if not argv or not argv[0]:
            raise InvalidSettings("argv is empty: name a program, as argv = ['python3', 'agent.py']")
        force_setattr(self, "argv", argv)
        force_setattr(self, "env", _variables(self.env, "env"))
        force_setattr(self, "secrets", _variables(self.secrets, "secrets"))
        force_setattr(self, "pass_env", _texts(self.pass_env, "pass_env", VARIABLES_MAX))
        for name in self.pass_env:
            _checked_variable(name, "pass_env")
        for name, reference in self.secrets.items():
            if not _REFERENCE.fullmatch(reference):
                # The value is not shown: it may be the secret itself.
                raise InvalidSettings(
                    f"secrets.{name} is not a reference", hint="write env:NAME or file:PATH, not the secret"
                )
        if self.user is not None:
            force_setattr(self, "user", _text(self.user, "user"))


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt may use. If `Work` has a smaller value, that value counts."""

    time_s: float | None = None
    """Wall-clock time. None: no limit. Raising it: a stuck agent holds its slot for longer."""
    silence_s: float | None = None
    """Time without output. None: no limit."""
    result_bytes_max: int = 10 * MIB
    """The longest result. Only the result is kept in memory, not the other output. A longer one ends the
    attempt."""
    log_bytes_max: int = 64 * MIB
    """The maximum size of the log file of each stream. Output beyond it is counted and not kept."""
    processes_max: int | None = None
    """The maximum number of processes and threads. It needs a pids cgroup, or `user` and root. None: no
    limit."""
    processes_unbounded: Unbounded = "refuse"
    """If `processes_max` cannot be enforced: refuse the work with the reason, or run it and note it in its
    log.
    """
    grace_s: float = 5.0
    """Between SIGTERM and SIGKILL."""

    def __post_init__(self) -> None:
        for name in ("time_s", "silence_s"):
            given = getattr(self, name)
            if given is not None:
                force_setattr(self, name, real(given, name, TIME_S_MIN, SECONDS_MAX, InvalidSettings))
        force_setattr(self, "grace_s", real(self.grace_s, "grace_s", 0.0, 3600.0, InvalidSettings))
        for name in ("result_bytes_max", "log_bytes_max"):
            force_setattr(self, name, whole(getattr(self, name), name, 0, BYTES_MAX, InvalidSettings))
        if self.processes_max is not None:
            most = whole(self.processes_max, "processes_max", 1, PROCESSES_MAX, InvalidSettings)
            force_setattr(self, "processes_max", most)
        unbounded = one_of(
            self.processes_unbounded, "processes_unbounded", get_args(Unbounded), InvalidSettings
        )
        force_setattr(self, "processes_unbounded", unbounded)


def checked_mark(mark: Any) -> str:
    """A name that is safe as a file name and as the value of a variable."""
    if type(mark) is not str or not _MARK.fullmatch(mark):
        raise InvalidSettings(
            f"{shown(mark)} cannot mark a run: a mark has 1 to 200 letters, digits and . _ + @ : -"
        )
    return mark


def resolved(path: Any, what: str) -> Path:
    """A directory, as an absolute path."""
    try:
        return Path(path).absolute()
    except (TypeError, ValueError, OSError):
        raise InvalidSettings(f"{what} must be a path, not {shown(path)}") from None


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidSettings(f"{what} must be text, not {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidSettings(f"{what} has a lone surrogate: {shown(value)}") from None
    if "\0" in value or len(value) > ARGUMENT_LENGTH_MAX:
        raise InvalidSettings(f"{what} has a NUL or more than {ARGUMENT_LENGTH_MAX} characters")
    return str.__str__(value)


def _texts(values: Any, what: str, most: int) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)):
        raise InvalidSettings(
            f"{what} must be a list, not {shown(values)}", hint="a list of arguments, not a line for a shell"
        )
    if len(values) > most:
        raise InvalidSettings(f"{what} has more than {most} items")
    return tuple(_text(each, f"each item of {what}") for each in values)


def _variables(values: Any, what: str) -> dict[str, str]:
    if not isinstance(values, dict) or len(values) > VARIABLES_MAX:
        raise InvalidSettings(f"{what} must be a table of at most {VARIABLES_MAX} variables")
    return {_checked_variable(name, what): _text(value, f"{what}.{name}") for name, value in values.items()}


def _checked_variable(name: Any, what: str) -> str:
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name) or name.startswith("RELAYMESH_RUN"):
        raise InvalidSettings(f"{what} names {shown(name)}, which is no variable that can be set")
    return str.__str__(name)
