"""Presence and roles, as plain tables of what follows from what."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from relaymesh.errors import InvalidEnvelope
from relaymesh.server.presence import Presence
from relaymesh.server.roster import negotiate
from relaymesh.wire.types import MESSAGE_TYPES, ROLES, End, Role, check_direction, fits, role_or_default

CODER = "default/coder"
TIMEOUT = 90_000


def test_whoever_registered_and_was_not_heard_of_is_registered() -> None:
    presence = Presence(TIMEOUT)
    assert presence.state(CODER, 5) == "registered"
    assert presence.state(CODER, 5, registered=False) == "unknown"
    assert presence.last_heard(CODER) is None


def test_an_agent_is_online_until_the_very_end_of_the_timeout() -> None:
    presence = Presence(TIMEOUT)
    presence.heard(CODER, 1_000, "thinking")
    assert presence.state(CODER, 1_000 + TIMEOUT - 1) == "online"
    assert presence.state(CODER, 1_000 + TIMEOUT) == "offline"
    assert (presence.last_heard(CODER), presence.status(CODER)) == (1_000, "thinking")


def test_draining_is_for_those_who_are_there() -> None:
    presence = Presence(TIMEOUT)
    presence.heard(CODER, 0)
    assert presence.state(CODER, 1, draining=True) == "draining"
    assert presence.state(CODER, TIMEOUT, draining=True) == "offline"


def test_goodbye_is_offline_at_once_and_a_word_brings_it_back() -> None:
    presence = Presence(TIMEOUT)
    presence.gone(CODER, 0)
    assert presence.state(CODER, 0) == "registered"
    presence.heard(CODER, 10)
    presence.gone(CODER, 20)
    assert presence.state(CODER, 20) == "offline"
    presence.heard(CODER, 30)
    assert presence.state(CODER, 30) == "online"


def test_who_is_offline_is_known_by_name_and_who_never_spoke_is_not_among_them() -> None:
    presence = Presence(TIMEOUT)
    presence.heard("default/silent", 0)
    presence.heard("default/gone", TIMEOUT)
    presence.gone("default/gone", TIMEOUT)
    presence.heard(CODER, 10)
    assert presence.offline(TIMEOUT) == ["default/silent", "default/gone"]


def test_words_that_come_late_take_nothing_back() -> None:
    presence = Presence(TIMEOUT)
    presence.heard(CODER, 100, "busy")
    presence.heard(CODER, 50)
    assert (presence.last_heard(CODER), presence.status(CODER)) == (100, "busy")


FITS: dict[End, set[Role]] = {
    "any": set(ROLES),
    "agent": set(ROLES),
    "manager": {"manager"},
    "developer": {"developer", "agent"},
    "reviewer": {"reviewer", "agent"},
    "tester": {"tester", "agent"},
    "mesh": set(),
}


@pytest.mark.parametrize("end", FITS)
def test_which_roles_fit_which_end_of_a_direction(end: End) -> None:
    assert {role for role in ROLES if fits(role, end)} == FITS[end]


@pytest.mark.parametrize("name", [row.name for row in MESSAGE_TYPES.values() if row.queued])
def test_a_message_goes_between_exactly_the_roles_of_its_row(name: str) -> None:
    row = MESSAGE_TYPES[name]
    for sender in ROLES:
        for recipient in ROLES:
            roles: dict[str, Role] = {"default/s": sender, "default/r": recipient}
            allowed = sender in FITS[row.sender] and recipient in FITS[row.recipient]
            with nullcontext() if allowed else pytest.raises(InvalidEnvelope, match=f"from {row.sender} to"):
                check_direction(name, "default/s", "default/r", roles.__getitem__)


def test_a_topic_has_no_role_and_a_custom_type_no_direction() -> None:
    role: Role = "tester"
    check_direction("status_report", "default/s", None, lambda _: role)
    check_direction("acme.deploy", "default/s", "default/r", lambda _: role)
    with pytest.raises(InvalidEnvelope):
        check_direction("task_assign", "default/s", None, lambda _: role)


def test_the_agent_called_manager_is_one_unless_it_says_something_else() -> None:
    assert role_or_default("team/manager", None) == "manager"
    assert role_or_default("team/manager", "tester") == "tester"
    assert role_or_default("team/coder", None) == "agent"
    assert role_or_default("team/coder", "manager") == "manager"


@pytest.mark.parametrize(
    ("given", "spoken"), [("1", "1.0"), ("1.0", "1.0"), ("1.1.0", "1.1"), ("1.99", "1.1")]
)
def test_any_1_x_is_understood(given: str, spoken: str) -> None:
    assert negotiate(given) == spoken


@pytest.mark.parametrize(
    "given", ["2", "2.0", "0.9", "", "one", "1.x", "1.1.1.1", "-1", "1." + "9" * 50, "１.1"]
)
def test_anything_else_is_refused(given: str) -> None:
    with pytest.raises(InvalidEnvelope):
        negotiate(given)
