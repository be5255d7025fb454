"""The server against its own document: whatever a request is, the answer is one that the document knows.

A real node behind the real app, requests made by schemathesis from `/openapi.json`, sound ones and broken
ones. No answer of 500 and above, none with a status, media type or body that the document does not have.
`RELAYMESH_SCHEMATHESIS=300` asks for so many requests of each kind to every operation.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from relaymesh.node.settings import MeshSettings
from relaymesh.server.app import ROUTES
from relaymesh.server.openapi import openapi
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings
from tests.server.serving import URL, Api, serving

EXAMPLES = int(os.environ.get("RELAYMESH_SCHEMATHESIS", "20"))
PATIENCE_S = 120
WAIT_MS_MAX = 5
KNOWN = {"mailbox": "coder", "name": "coder", "topic": "news", "id": "known", "dead_sequence": "7"}
"""Names that are there, so that more than half of the requests get past the first check."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

SCHEMA = schemathesis.openapi.from_dict(openapi(ROUTES))
FOUND: list[Any] = [found.ok() for found in SCHEMA.get_all_operations()]  # type: ignore[union-attr]
OPERATIONS = {operation.label: operation for operation in FOUND}


class Node:
    """A served node on a loop of its own, and requests to it from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ready: Future[Api] = Future()
        self._done: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._api = self._ready.result(PATIENCE_S)
        self.headers = dict(self._api.admin.headers)

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        mesh = MeshSettings(durability="batched")
        open_to_all = ServerSettings(security=SecuritySettings(write_rate=0))
        async with serving(self._path, mesh=mesh, settings=open_to_all) as api:
            await api.open("coder", "planner")
            await api.admin.put("/v1/topics/news/subscriptions/coder")
            await api.send("coder", 1, id="known")
            self._ready.set_result(api)
            await self._done.wait()

    def ask(self, request: requests.PreparedRequest) -> httpx.Response:
        body: Any = request.body
        headers: Any = dict(request.headers)
        asked = httpx.Request(request.method or "GET", request.url or URL, headers=headers, content=body)
        sending = asyncio.run_coroutine_threadsafe(self._api.admin.send(asked), self._loop)
        return sending.result(PATIENCE_S)

    def close(self) -> None:
        assert self._done is not None
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("node"))
    yield node
    node.close()


def cases(operation: Any, mode: schemathesis.GenerationMode) -> st.SearchStrategy[Any]:
    """Requests to one operation; half of them to something that is there."""
    strategy: st.SearchStrategy[Any] = operation.as_strategy(generation_mode=mode)
    known = {name: value for name, value in KNOWN.items() if f"{{{name}}}" in operation.path}
    if known:
        strategy |= operation.as_strategy(generation_mode=mode, path_parameters=known)
    return strategy.map(impatient)


def impatient(case: Any) -> Any:
    """The same request, without a long wait."""
    for container, name in ((case.query, "wait_ms"), (case.body, "waitMs")):
        if isinstance(container, dict):
            wait = container.get(name)
            if isinstance(wait, (int, float)) and wait > WAIT_MS_MAX:
                container[name] = WAIT_MS_MAX
            elif isinstance(wait, str) and wait.strip().isdigit():
                container[name] = str(WAIT_MS_MAX)
    return case


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_answer_is_one_that_the_document_knows(node: Node, label: str, mode: str) -> None:
    operation = OPERATIONS[label]
    generation = schemathesis.GenerationMode(mode)
    if mode == "negative" and not (operation.body or operation.path_parameters or operation.query):
        pytest.skip("nothing in it can be wrong")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(operation, generation))
    def ask(case: Any) -> None:
        arguments = case.as_transport_kwargs(base_url=URL, headers=node.headers)
        prepared = requests.Request(**{**arguments, "cookies": None}).prepare()
        case.validate_response(node.ask(prepared), checks=CHECKS)

    ask()


def test_the_node_is_well_after_all_of_it(node: Node) -> None:
    answer = node.ask(requests.Request("GET", f"{URL}/readyz").prepare())
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")


def test_the_document_itself_is_valid() -> None:
    SCHEMA.validate()


def test_every_operation_has_words_and_an_answer() -> None:
    for path, methods in SCHEMA.raw_schema["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], f"{method} {path}"
            assert any(status.startswith("2") for status in operation["responses"]), f"{method} {path}"
