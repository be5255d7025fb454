"""The bodies of the HTTP API: camelCase, strict where a client speaks, and with a word on every type."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from relaymesh.kernel.contract import Rule
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.wire import api

BODIES: list[Any] = [
    kind
    for name in api.__all__
    if isinstance(kind := getattr(api, name), type) and issubclass(kind, msgspec.Struct)
]
REQUESTS = [kind for kind in BODIES if issubclass(kind, api.Request) and kind is not api.Request]

OTHER = MailboxSettings(
    capacity=7,
    schedule="strict",
    lease_ms=1234,
    max_retries=9,
    backoff_jitter=0.5,
    ordered=True,
    overflow="dead_letter",
    contract={"invalid": Rule(retries=0, exit="drop", alert=True)},
    rate_per_s=2.5,
)


@pytest.mark.parametrize("settings", [MailboxSettings(), OTHER])
def test_settings_come_back_as_they_went(settings: MailboxSettings) -> None:
    data = msgspec.json.encode(api.settings_body(settings))
    body = msgspec.json.decode(data, type=api.MailboxSettingsBody)
    assert api.settings_from(body, schedule="fifo") == settings


def test_settings_that_are_left_out_have_their_defaults() -> None:
    body = msgspec.json.decode(b"{}", type=api.MailboxSettingsBody)
    assert api.settings_from(body) == MailboxSettings()
    assert api.settings_from(body, schedule="fifo").schedule == "fifo"


def test_every_setting_of_a_mailbox_can_be_given() -> None:
    assert api.MailboxSettingsBody.__struct_fields__ == MailboxSettings.__struct_fields__


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_a_request_refuses_a_field_it_does_not_know(kind: Any) -> None:
    assert kind.__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
def test_names_on_the_wire_are_camel_case_and_every_type_says_what_it_is(kind: Any) -> None:
    assert kind.__doc__
    for name in kind.__struct_encode_fields__:
        assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", name), name


def test_the_schema_of_all_bodies_can_be_drawn() -> None:
    _, components = msgspec.json.schema_components(BODIES, ref_template="#/components/schemas/{name}")
    assert {kind.__name__ for kind in BODIES} <= components.keys()


@pytest.mark.parametrize(
    ("text", "sound"),
    [("0.1.7", True), ("1.2", False), ("a.b.c", False), ("", False), ("0.1.-7", False)],
)
def test_a_token_has_its_shape_before_anybody_looks_it_up(text: str, sound: bool) -> None:
    data = msgspec.json.encode({"acks": [text]})
    if sound:
        assert msgspec.json.decode(data, type=api.SettleRequest).tokens == [text]
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(data, type=api.SettleRequest)
