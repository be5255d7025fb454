"""Addresses: `namespace/name`. A plain `name` means `default/name`.

Agents are addressed by name. A subscription's mailbox is addressed by the topic pattern and the
subscription's name, joined by `:` (`default/order.*:billing`). No agent name contains `:`, so the two kinds
of address never collide.
"""

from __future__ import annotations

import re

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.bounds import plain_text, shown

DEFAULT_NAMESPACE = "default"
NAME_LENGTH_MAX = 128

_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_AGENT = re.compile(r"[^\W][\w.@+-]*\Z")
_TOPIC = re.compile(r"[\w@+-]+(\.[\w@+-]+)*\Z")
_PATTERN = re.compile(r"(?:[\w@+-]+|\*)(?:\.(?:[\w@+-]+|\*))*(?:\.\*\*)?\Z|\*\*\Z")


def _split(address: str, what: str) -> tuple[str, str]:
    address = plain_text(address, what, InvalidEnvelope)
    namespace, slash, name = address.rpartition("/")
    if not slash:
        namespace = DEFAULT_NAMESPACE
    if not name:
        raise InvalidEnvelope(f"{what} is empty")
    if len(name) > NAME_LENGTH_MAX or len(namespace) > NAME_LENGTH_MAX:
        raise InvalidEnvelope(f"{what} is longer than {NAME_LENGTH_MAX} characters: {name[:40]!r}…")
    if not _NAMESPACE.match(namespace):
        raise InvalidEnvelope(f"{what} has a malformed namespace: {shown(address)}")
    return namespace, name


def _checked(address: str, what: str, shape: re.Pattern[str], allowed: str) -> str:
    namespace, name = _split(address, what)
    if not shape.match(name):
        raise InvalidEnvelope(f"{what} {shown(address)} is malformed", hint=f"use {allowed}")
    return f"{namespace}/{name}"


def agent_address(name: str, what: str = "agent name") -> str:
    """The full address of an agent: `coder` -> `default/coder`."""
    return _checked(name, what, _AGENT, "letters, digits and . _ @ + -, starting with a letter, digit or _")


def topic_address(topic: str) -> str:
    """The full address of a topic that is published to: `order.created` -> `default/order.created`."""
    return _checked(topic, "topic", _TOPIC, "words of letters, digits and _ @ + -, joined by dots")


def pattern_address(pattern: str) -> str:
    """The full address of a topic pattern: `*` stands for one word, a last `**` for one or more."""
    return _checked(
        pattern, "topic pattern", _PATTERN, "words joined by dots; * for one word, ** at the end for the rest"
    )


def subscription_address(pattern: str, name: str) -> str:
    """The mailbox of subscription `name` on `pattern`."""
    _, plain = _split(agent_address(name, "subscription name"), "subscription name")
    return f"{pattern_address(pattern)}:{plain}"


def namespace_of(address: str) -> str:
    return address.partition("/")[0]


def name_of(address: str) -> str:
    return address.partition("/")[2]


def is_subscription(mailbox: str) -> bool:
    """Whether this is the address of a subscription's mailbox, not of an agent's."""
    return ":" in mailbox


def subscriber_of(mailbox: str) -> str:
    """The agent whose name a subscription's mailbox carries: `billing` for `default/order.*:billing`.

    Any other mailbox belongs to the agent of its own name.
    """
    if ":" not in mailbox:
        return mailbox
    return f"{namespace_of(mailbox)}/{name_of(mailbox).rpartition(':')[2]}"


def pattern_matches(pattern: str, topic: str) -> bool:
    """Whether a full topic pattern covers a full topic (both with their namespace)."""
    if namespace_of(pattern) != namespace_of(topic):
        return False
    wanted = name_of(pattern).split(".")
    words = name_of(topic).split(".")
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        if len(words) <= len(wanted):
            return False
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(w in ("*", word) for w, word in zip(wanted, words, strict=True))
