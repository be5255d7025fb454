"""One access token: `rm_<id>_<secret>`, of which only the SHA-256 is kept.

The id is no secret: lists, logs and the audit name a token by it, so that a leaked token can be
revoked by any person who sees it, without copying it anywhere.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from typing import Literal

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.address import DEFAULT_NAMESPACE, agent_address, name_of, namespace_of
from relaymesh.server.security.likeness import RESERVED_NAMES, is_reserved
from relaymesh.server.security.principal import EVERYWHERE, Principal

PREFIX = "rm_"
SECRET_BYTES = 32
LABEL_LENGTH_MAX = 80
ROLES: dict[str, frozenset[str]] = {
    "ro": frozenset({"read"}),
    "rw": frozenset({"read", "write"}),
    "admin": frozenset({"read", "write", "admin"}),
}
"""`ro` and `rw` are the console's `ro-token` and `rw-token`."""

_SHAPE = re.compile(r"rm_([a-z0-9]{5,16})_([A-Za-z0-9_-]{43})\Z")
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # none that is read as another
_PLAIN_SCOPES = ("read", "write", "admin")

Standing = Literal["valid", "expired", "revoked"]


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a token. Times are milliseconds of the wall clock."""

    id: str
    sha256: str
    label: str
    namespace: str
    scopes: tuple[str, ...]
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    replaces: str | None = None
    """The token this one was made for by a rotation; both are valid until that one expires."""

    def standing(self, now_ms: int) -> Standing:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now_ms else "valid"

    @property
    def ended_at(self) -> int | None:
        """When it stops being valid, or did: whichever of expiry and revocation came first."""
        return min((at for at in (self.expires_at, self.revoked_at) if at is not None), default=None)

    @property
    def agents(self) -> frozenset[str]:
        """Plain names of the agents that it is for."""
        return self.principal().agents

    def principal(self) -> Principal:
        return Principal(self.id, self.label, self.namespace, frozenset(self.scopes))


def mint(id: str | None = None) -> tuple[str, str]:
    """A new token: its id and its text. The text exists only here and where it is shown."""
    id = id or "".join(secrets.choice(_ID_LETTERS) for _ in range(8))
    return id, f"{PREFIX}{id}_{secrets.token_urlsafe(SECRET_BYTES)}"


def id_of(text: str) -> str | None:
    """The id inside a token's text; None for what has not the shape of a token."""
    match = _SHAPE.match(text)
    return match[1] if match else None


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def checked_scopes(scopes: Iterable[str]) -> tuple[str, ...]:
    """The scopes in one order, each of them known."""
    found = sorted(set(scopes))
    if not found:
        raise InvalidSettings("a token needs at least one scope", hint="read, write, admin or agent:NAME")
    for scope in found:
        if scope not in _PLAIN_SCOPES:
            _check_agent(scope)
    return tuple(found)


def _check_agent(scope: str) -> None:
    kind, colon, name = scope.partition(":")
    if kind != "agent" or not colon or "/" in name:
        raise InvalidSettings(f"{scope!r} is no scope", hint="read, write, admin or agent:NAME")
    if is_reserved(name_of(agent_address(name))):
        raise InvalidSettings(
            f"{name!r} is a reserved name, or looks like one: the mesh itself speaks as it",
            hint=f"reserved are {', '.join(sorted(RESERVED_NAMES))}",
        )


def checked_namespace(namespace: str, scopes: Iterable[str]) -> str:
    """One namespace; `*`, every one of them, for an admin alone."""
    if namespace == EVERYWHERE:
        if "admin" not in scopes:
            raise InvalidSettings(
                "only an admin token may be for every namespace", hint="--namespace NAME, or --scope admin"
            )
        return namespace
    return namespace_of(agent_address(f"{namespace or DEFAULT_NAMESPACE}/any", "namespace"))


def checked_label(label: str) -> str:
    if len(label) > LABEL_LENGTH_MAX or not label.isprintable() or PREFIX in label:
        raise InvalidSettings(
            f"a label is up to {LABEL_LENGTH_MAX} printable characters, and no token", hint="--label TEXT"
        )
    return label
