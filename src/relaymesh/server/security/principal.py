"""The credential of one request or connection, and what it allows.

| scope | allows |
|---|---|
| `read` | looking: lists, stories, statistics, dead letters, peeking |
| `agent:<name>` | being that agent alone: sending as it, receiving and settling its mail, looking
into its mailboxes, following messages it sent or got, seeing names of agents of its namespace |
| `write` | acting as any agent of the namespace; changing mailboxes, subscriptions, dead letters |
| `admin` | everything inside its namespace; with the namespace `*`, everything everywhere |

A route asks for what it does: `require("agent")` to send, receive or settle (any of `agent:<name>`,
`write`, `admin` will do; `sender` and `may_receive` then say whose), `require("read")`,
`require("write")`, `require_everywhere()` for what cannot be parted by namespace (the journal, a checkpoint).

Who a message is from (`sender`), by credential and the `from` that was given:

| credential | no `from` | its own name | another name |
|---|---|---|---|
| `agent:<name>`, whatever else it has | that agent | that agent | refused |
| several `agent:<name>` | see below | that agent | refused |
| `write` or `admin`, no agent | see below | | that name, in its namespace |
| `read` alone | refused | refused | refused |

Without `from`, a message is from the agent whose delivery it replies to, or from the agent of the WebSocket's
`hello`; without these it is refused.

`RESERVED_NAMES` are the mesh's own voice: only an `admin` credential may send as one of them, or as a name
that looks like one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, Unauthorized
from relaymesh.kernel.address import (
    agent_address,
    name_of,
    namespace_of,
    pattern_address,
    subscriber_of,
    subscription_address,
    topic_address,
)
from relaymesh.server.security.likeness import RESERVED_NAMES, is_reserved

__all__ = ["EVERYWHERE", "RESERVED_NAMES", "Login", "Principal", "login_of", "principal_of"]

EVERYWHERE = "*"
STATE_KEY = "relaymesh.principal"
LOGIN_KEY = "relaymesh.login"
Login = Callable[[str], None]
"""Takes the token of a WebSocket that was opened without one. Raises the guard's `Refused`."""
_AGENT = "agent:"


class Principal(msgspec.Struct, frozen=True):
    """A valid credential. Its checks raise `Unauthorized(authenticated=True)`."""

    token_id: str
    label: str
    namespace: str
    scopes: frozenset[str]

    # -- what it may do

    @property
    def agents(self) -> frozenset[str]:
        """The agents this credential is, by plain name."""
        return frozenset(scope.removeprefix(_AGENT) for scope in self.scopes if scope.startswith(_AGENT))

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    @property
    def everywhere(self) -> bool:
        """Whether it is bound to no namespace."""
        return self.is_admin and self.namespace == EVERYWHERE

    def allows(self, scope: str) -> bool:
        if self.is_admin or scope in self.scopes:
            return True
        return scope == "agent" and ("write" in self.scopes or bool(self.agents))

    def require(self, scope: str) -> None:
        """Refuse unless the credential allows `read`, `agent`, `write` or `admin`."""
        if not self.allows(scope):
            raise self._refusal(f"this needs the scope {scope!r}")

    def require_everywhere(self) -> None:
        """Refuse unless it is an admin of every namespace: for what shows or changes all of them at once."""
        self.require("admin")
        if not self.everywhere:
            raise self._refusal(f"this needs an admin of every namespace, not of {self.namespace!r} alone")

    # -- addresses inside its namespace

    def address(self, name: str, what: str = "agent name") -> str:
        """The full address of an agent: a plain name lies in the credential's namespace."""
        return self._inside(agent_address(self._qualified(name), what), what)

    def topic(self, topic: str) -> str:
        return self._inside(topic_address(self._qualified(topic)), "topic")

    def pattern(self, pattern: str) -> str:
        return self._inside(pattern_address(self._qualified(pattern)), "topic pattern")

    def subscription(self, pattern: str, name: str) -> str:
        return self._inside(subscription_address(self._qualified(pattern), name), "subscription")

    def mailbox(self, name: str) -> str:
        """The full address of a mailbox: an agent's name, or `pattern:name` of a subscription."""
        pattern, colon, subscription = name.partition(":")
        return self.subscription(pattern, subscription) if colon else self.address(name, "mailbox")

    def sees(self, address: str) -> bool:
        """Whether a full address lies in its namespace: what lists and stories leave out otherwise."""
        return self.everywhere or namespace_of(address) == self.namespace

    def may_look(self, mailbox: str) -> bool:
        """Whether it may look into the mailbox: `read` into all of its namespace, others into their own."""
        return self.sees(mailbox) and (self.allows("read") or self.may_receive(mailbox))

    def may_follow(self, sender: str, mailbox: str) -> bool:
        """Whether it may follow a message of this sender in the mailbox: its own, or one it may look at."""
        return self.may_look(mailbox) or (self.sees(sender) and name_of(sender) in self.agents)

    def require_looking(self) -> None:
        """Refuse a credential that may look at nothing. Lists leave out what `may_look` does not allow."""
        if not self.allows("agent"):
            self.require("read")

    @property
    def view(self) -> str:
        """Names what this credential sees in lists: equal for credentials that see the same."""
        if self.allows("read"):
            return "" if self.everywhere else self.namespace
        return f"{self.namespace} {self.token_id}"

    # -- acting

    def sender(self, given: str | None, otherwise: str | None = None) -> str:
        """The sender that is stamped on a message; `given` is the `from` the message came with.

        `otherwise`: the sender when no `from` was given and the credential is no single agent: the agent of
        the connection's hello, or the one whose delivery is answered. The answer depends on nothing else: a
        connection may remember it.
        """
        self.require("agent")
        if given is None and (otherwise is None or len(self.agents) == 1):
            return self._only_agent()
        given = otherwise if given is None else given
        assert given is not None
        address = self.address(given, "from")
        if self.agents and not self._is_agent(address):
            raise self._refusal(f"{given!r} in `from` is not the agent of this token")
        if not self.is_admin and is_reserved(name_of(address)):
            raise self._refusal(f"{given!r} in `from` is a reserved name, or looks like one")
        return address

    def may_receive(self, mailbox: str) -> bool:
        """Whether it may receive from, settle in and change the mailbox of this full address.

        An agent owns its mailbox and the subscriptions that carry its name (`order.*:billing` is
        billing's); `write` and `admin` credentials every mailbox of their namespace.
        """
        if not self.sees(mailbox):
            return False
        if self.is_admin or "write" in self.scopes:
            return True
        _, colon, subscription = name_of(mailbox).partition(":")
        return (subscription if colon else name_of(mailbox)) in self.agents

    def owner_of(self, mailbox: str) -> str:
        """The agent that pays for a subscription made by this credential; empty for `write` and `admin`."""
        return "" if self.allows("write") else subscriber_of(mailbox)

    def require_mailbox(self, mailbox: str) -> None:
        """Refuse unless `may_receive`. The refusal is the same for a mailbox that is not there."""
        if not self.may_receive(mailbox):
            raise self._refusal(f"mailbox {mailbox!r} is not this token's")

    def _only_agent(self) -> str:
        if len(self.agents) == 1:
            return self.address(next(iter(self.agents)))
        raise InvalidEnvelope(
            "`from` is missing",
            hint="this token is no single agent: name the sender, or say hello as one on a WebSocket",
        )

    def _is_agent(self, address: str) -> bool:
        return any(self.address(agent) == address for agent in self.agents)

    def _qualified(self, name: str) -> str:
        if self.namespace == EVERYWHERE or "/" in name:
            return name
        return f"{self.namespace}/{name}"

    def _inside(self, address: str, what: str) -> str:
        if not self.sees(address):
            raise self._refusal(f"{what} {address!r} lies outside namespace {self.namespace!r}")
        return address

    def _refusal(self, why: str) -> Unauthorized:
        return Unauthorized(f"token {self.token_id} may not do that: {why}", authenticated=True)


def principal_of(scope: Mapping[str, Any]) -> Principal:
    """The principal of a request or connection, as the guard found it."""
    principal = scope.get(STATE_KEY)
    if not isinstance(principal, Principal):
        raise Unauthorized("no credential was given")
    return principal


def login_of(scope: Mapping[str, Any]) -> Login | None:
    """What takes the token of a WebSocket that has shown none yet; None when it has."""
    login: Login | None = scope.get(LOGIN_KEY)
    return login
