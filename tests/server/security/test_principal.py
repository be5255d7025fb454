"""What a credential allows: scopes, namespaces, and whose name is on a message."""

from __future__ import annotations

import pytest

from relaymesh.errors import InvalidEnvelope, Unauthorized
from relaymesh.server.security.principal import RESERVED_NAMES, Principal, principal_of


def principal(*scopes: str, namespace: str = "default") -> Principal:
    return Principal("id123", "label", namespace, frozenset(scopes))


def refused(call: object, *arguments: object) -> Unauthorized:
    with pytest.raises(Unauthorized) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.authenticated
    return caught.value


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["read"], {"read"}),
        (["agent:coder"], {"agent"}),
        (["write"], {"agent", "write"}),
        (["read", "write"], {"agent", "read", "write"}),
        (["admin"], {"agent", "read", "write", "admin"}),
    ],
)
def test_a_scope_allows_what_the_table_says(scopes: list[str], allowed: set[str]) -> None:
    who = principal(*scopes)
    for scope in ("agent", "read", "write", "admin"):
        if scope in allowed:
            who.require(scope)
        else:
            refused(who.require, scope)


def test_the_sender_is_the_agent_of_the_credential() -> None:
    coder = principal("agent:coder", "read")
    assert coder.sender(None) == "default/coder"
    assert coder.sender("coder") == "default/coder"
    assert coder.sender("default/coder") == "default/coder"


@pytest.mark.parametrize("given", ["planner", "default/planner", "mesh", "other/coder", "Coder"])
def test_an_agent_cannot_write_as_another(given: str) -> None:
    refused(principal("agent:coder").sender, given)
    refused(principal("agent:coder", "write").sender, given)
    refused(principal("agent:coder", "admin").sender, given)


def test_a_credential_of_several_agents_must_say_which() -> None:
    both = principal("agent:coder", "agent:tester")
    with pytest.raises(InvalidEnvelope, match="`from` is missing"):
        both.sender(None)
    assert both.sender("tester") == "default/tester"
    refused(both.sender, "planner")


def test_a_credential_of_no_agent_names_the_sender_inside_its_namespace() -> None:
    writer = principal("write", namespace="team")
    with pytest.raises(InvalidEnvelope):
        writer.sender(None)
    assert writer.sender("planner") == "team/planner"
    refused(writer.sender, "default/planner")


def test_reading_does_not_allow_sending() -> None:
    refused(principal("read").sender, "coder")
    refused(principal("read").sender, None)


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_only_an_admin_speaks_as_the_mesh(name: str) -> None:
    refused(principal("write").sender, name)
    assert principal("admin", namespace="*").sender(name) == f"default/{name}"


def test_a_plain_name_lies_in_the_namespace_of_the_credential() -> None:
    team = principal("write", namespace="team")
    assert team.address("coder") == "team/coder"
    assert team.topic("order.created") == "team/order.created"
    assert team.pattern("order.*") == "team/order.*"
    assert team.mailbox("order.*:billing") == "team/order.*:billing"


@pytest.mark.parametrize("scope", ["write", "admin"])
def test_a_foreign_namespace_is_refused(scope: str) -> None:
    team = principal(scope, namespace="team")
    refused(team.address, "default/coder")
    refused(team.topic, "default/order.created")
    refused(team.pattern, "default/order.*")
    refused(team.mailbox, "default/order.*:billing")
    assert not team.sees("default/coder")
    assert not team.may_receive("default/coder")


def test_an_admin_of_everything_goes_everywhere() -> None:
    admin = principal("admin", namespace="*")
    assert admin.address("coder") == "default/coder"
    assert admin.address("team/coder") == "team/coder"
    assert admin.may_receive("team/coder")


def test_a_namespace_of_a_star_without_admin_is_nowhere() -> None:
    assert not principal("write", namespace="*").sees("default/coder")


@pytest.mark.parametrize(
    ("mailbox", "its_own"),
    [
        ("default/coder", True),
        ("default/order.*:coder", True),
        ("default/planner", False),
        ("default/order.*:billing", False),
        ("default/coder.two", False),
        ("default/coder:planner", False),
        ("team/coder", False),
        ("team/order.*:coder", False),
    ],
)
def test_an_agent_receives_its_own_mail_alone(mailbox: str, its_own: bool) -> None:
    coder = principal("agent:coder")
    assert coder.may_receive(mailbox) is its_own
    if not its_own:
        refused(coder.require_mailbox, mailbox)


def test_a_writer_receives_any_mail_of_its_namespace() -> None:
    assert principal("write").may_receive("default/coder")
    assert not principal("read").may_receive("default/coder")


def test_a_scope_without_a_credential_is_refused_as_not_authenticated() -> None:
    with pytest.raises(Unauthorized) as caught:
        principal_of({"type": "http"})
    assert not caught.value.authenticated
