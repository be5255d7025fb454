"""What the server says about itself: whole, true to the routing table, and readable without a network."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from relaymesh.errors import MeshError
from relaymesh.server.app import ROUTES
from relaymesh.server.codes import BY_NAME, CODES, AgentBusy, classes
from relaymesh.server.documents import PATHS, Documents
from relaymesh.server.openapi import DETAILS, openapi, path_of
from relaymesh.server.problem import TITLES

OPENAPI = openapi(ROUTES)


def shown(path: str) -> bytes:
    exchange: Any = SimpleNamespace(scope={"path": path})
    return asyncio.run(Documents(ROUTES).show(exchange)).body


def test_every_route_is_in_the_document_and_every_detail_has_its_route() -> None:
    routes = {(row.method, path_of(row.path)) for row in ROUTES}
    documented = {(method.upper(), path) for path, methods in OPENAPI["paths"].items() for method in methods}
    assert documented == routes
    assert set(DETAILS) <= routes


def test_every_reference_leads_somewhere() -> None:
    for path in ("/openapi.json", "/asyncapi.json"):
        document = msgspec.json.decode(shown(path))
        for target in references(document):
            found: Any = document
            for part in target.removeprefix("#/").split("/"):
                found = found[part]


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(each) for each in value.values()))
    return set().union(*(references(each) for each in value)) if isinstance(value, list) else set()


@pytest.mark.parametrize("path", PATHS)
def test_each_document_is_served(path: str) -> None:
    assert path in {row.path for row in Documents(ROUTES).routes}
    assert len(shown(path)) > 300


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attributes)
        self.names.add(given.get("id") or "")
        self.links += [value or "" for name, value in attributes if name in {"href", "src"}]


def test_the_page_needs_nothing_from_elsewhere_and_no_script() -> None:
    page = Links()
    page.feed(shown("/docs").decode())
    assert "script" not in page.tags
    assert {link for link in page.links if not link.startswith(("#", "/"))} == set()
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.names


def test_words_in_a_document_cannot_become_markup() -> None:
    from relaymesh.server.reference_page import reference_page

    document = msgspec.json.decode(msgspec.json.encode(OPENAPI))
    document["info"]["description"] = "<script>alert(1)</script>"
    document["components"]["schemas"]["ProblemBody"]["description"] = '"><img src=x onerror=alert(1)>'
    page = reference_page(document)
    assert "<script" not in page
    assert "<img" not in page


def test_the_websocket_s_frames_are_all_described() -> None:
    from typing import get_args

    from relaymesh.server.asyncapi import NODE_FRAMES, name_of
    from relaymesh.server.ws import text
    from relaymesh.wire import frames

    document = msgspec.json.decode(shown("/asyncapi.json"))
    assert document["asyncapi"] == "3.0.0"
    operations = document["operations"]
    assert len(operations["fromClient"]["messages"]) == len(get_args(text.ClientFrame))
    assert {name_of(kind) for kind in NODE_FRAMES} == {name_of(kind) for kind in get_args(frames.NodeFrame)}
    assert document["components"]["schemas"]["Send"]["properties"]["messages"]["items"] == {
        "$ref": "#/components/schemas/Message"
    }


NEVER_SERVED = {
    "MESH_ERROR",
    "UNREACHABLE",
    "NO_ANSWER",
    "TASK_FAILED",
    "DIRECTORY_IN_USE",
    "JOURNAL_DAMAGED",
    "FORMAT_TOO_NEW",
    "RECORD_UNREADABLE",
    "ASIDE_INVALID",
    "STORE_MISCONFIGURED",
}
"""Errors of a client, and of a start."""


def test_every_error_that_can_be_served_has_its_row() -> None:
    assert set(classes()) - NEVER_SERVED <= set(BY_NAME)
    assert len(BY_NAME) == len(CODES)
    assert {row.status for row in CODES if row.status} | {403} == set(TITLES)


def test_the_protocol_s_six_codes_are_there() -> None:
    assert sorted(row.name for row in CODES if row.protocol) == [
        "AGENT_BUSY",
        "AGENT_OFFLINE",
        "INVALID_MESSAGE",
        "RATE_LIMITED",
        "TASK_NOT_FOUND",
        "UNAUTHORIZED",
    ]


def test_the_table_says_retryable_where_the_error_does() -> None:
    known: dict[str, type[MeshError]] = {**classes(), AgentBusy.code: AgentBusy}
    for row in CODES:
        if row.name in known:
            assert row.retryable == known[row.name].retryable, row.name


def test_the_protocol_s_page_has_every_type_and_code() -> None:
    from relaymesh.wire.types import MESSAGE_TYPES
    from tests.project.tree import ROOT

    page = (ROOT / "docs/reference/protocol.md").read_text(encoding="utf-8")
    words = set(re.findall(r"`([\w.]+)`", page))
    assert set(MESSAGE_TYPES) | {row.name for row in CODES} <= words


def test_the_words_about_a_frame_use_the_names_that_travel() -> None:
    """A summary that says `wait_ms` makes people send it."""
    components = msgspec.json.decode(shown("/asyncapi.json"))["components"]
    words = {name: message.get("summary", "") for name, message in components["messages"].items()}
    assert "`waitMs`" in words["receive"]
    assert not [name for name, text in words.items() if re.search(r"`[a-z]+_[a-z_]+`", text)]


def test_every_frame_of_a_client_is_closed_to_other_fields() -> None:
    document = msgspec.json.decode(shown("/asyncapi.json"))
    schemas = document["components"]["schemas"]
    for message in document["operations"]["fromClient"]["messages"]:
        name = message["$ref"].rpartition("/")[2]
        payload = document["components"]["messages"][name]["payload"]["$ref"].rpartition("/")[2]
        assert schemas[payload]["additionalProperties"] is False, name


def test_every_call_is_described_with_its_scope_and_its_arguments() -> None:
    from relaymesh.server.ws.calls import CALLS

    document = msgspec.json.decode(shown("/asyncapi.json"))
    calls, schemas = document["x-calls"], document["components"]["schemas"]
    assert {name: call["scope"] for name, call in calls.items()} == {
        name: row.scope for name, row in CALLS.items()
    }
    arguments = {name: schemas[call["arguments"]["$ref"].rpartition("/")[2]] for name, call in calls.items()}
    assert all(each["additionalProperties"] is False for each in arguments.values())
    assert arguments["put_workflow"]["required"] == ["workflow"]
    assert set(arguments["find_workflow"]["properties"]) == {"workflow", "version", "namespace"}
