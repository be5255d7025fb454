"""The environment of an agent: what it needs to run, what its declaration names, and its secrets.

Secrets are named by reference and read at each start. They are never stored: in the log of an agent they are
replaced, and a result that contains one is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from relaymesh.agents.command import Command
from relaymesh.agents.processes import MARK
from relaymesh.errors import InvalidSettings

__all__ = ["ALLOWED", "Blotter", "Environment"]

ALLOWED = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "TMPDIR", "LANG", "LANGUAGE",
    "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME", "LC_COLLATE",
)  # fmt: skip
"""Variables that every agent gets from its supervisor, where they are set."""

SECRET_BYTES_MAX = 65_536
BLOTTED_BYTES_MIN = 6
"""Shorter secrets are not replaced: they would replace parts of ordinary words."""
BLOT = b"[secret]"


class Environment:
    """The variables of one start, and the secrets among them."""

    def __init__(self, variables: Mapping[str, str], secrets: Mapping[str, str]) -> None:
        self.variables = {**variables, **secrets}
        self._secrets = {
            name: value.encode()
            for name, value in secrets.items()
            if len(value.encode()) >= BLOTTED_BYTES_MIN
        }

    @classmethod
    def of(cls, command: Command, mark: str, ours: Mapping[str, str] = os.environ) -> Environment:
        """Resolve what the command names. Raises `InvalidSettings` for a secret that is not there."""
        named = (*ALLOWED, *command.pass_env)
        variables = {name: ours[name] for name in named if name in ours} | command.env | {MARK: mark}
        secrets = {name: _secret(name, reference, ours) for name, reference in command.secrets.items()}
        return cls(variables, secrets)

    def blotter(self) -> Blotter:
        return Blotter(tuple(self._secrets.values()))

    def blotted(self, text: str) -> str:
        """The text without secrets, for a reason or an event."""
        for secret in self._secrets.values():
            text = text.replace(secret.decode(), BLOT.decode())
        return text

    def secret_in(self, data: bytes) -> str | None:
        """The name of a secret whose value stands in the data."""
        return next((name for name, secret in self._secrets.items() if secret in data), None)


class Blotter:
    """Removes secrets from a stream, also if a secret is split between two pieces."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self._secrets = secrets
        self._keep = max(map(len, secrets), default=1) - 1
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if not self._keep:
            return data
        whole = self._blot(self._held + data)
        cut = max(0, len(whole) - self._keep)
        self._held = whole[cut:]
        return whole[:cut]

    def rest(self) -> bytes:
        rest, self._held = self._held, b""
        return rest

    def _blot(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, BLOT)
        return data


def _secret(name: str, reference: str, ours: Mapping[str, str]) -> str:
    kind, _, where = reference.partition(":")
    if kind == "env":
        if where not in ours:
            raise InvalidSettings(
                f"the secret {name} is {reference}, and there is no such variable",
                hint=f"set {where} where the supervisor starts",
            )
        return ours[where]
    try:
        with Path(where).expanduser().open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        value = data.decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"the secret {name} is {reference}, which cannot be read: {type(error).__name__}",
            hint="check the path and who may read it",
        ) from None
    if len(data) > SECRET_BYTES_MAX or "\0" in value:
        raise InvalidSettings(f"the secret {name} is {reference}, which is no text of at most 64 KiB")
    return value
