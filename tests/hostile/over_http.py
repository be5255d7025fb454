"""Hostile requests, drawn from the OpenAPI document that the node itself serves."""

from __future__ import annotations

import http.client
import json
import logging
import random
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from tests.hostile.report import Report
from tests.hostile.station import PATIENCE_S, Station, lives
from tests.hostile.tree import JSON_VALUES, Bytes, Grow, as_json, spoil

BACK_PRESSURE = {"STORE_LAGGING", "DISK_FLOOR", "RATE_LIMITED", "MAILBOX_FULL", "CONNECTIONS_FULL"}
RARE = {"GET /metrics": 0.3, "POST /v1/checkpoint": 0.2, "GET /v1/journal": 0.3, "GET /openapi.json": 0.1}
OFTEN = {"POST /v1/settle": 8, "POST /v1/messages": 6, "PUT /v1/mailboxes/{mailbox}": 4, "POST /v1/agents": 3}


class Operation(msgspec.Struct, frozen=True):
    """One row of the document."""

    name: str
    method: str
    path: str
    query: dict[str, Any]
    in_path: dict[str, Any]
    body: dict[str, Any] | None


def operations(document: dict[str, Any]) -> list[Operation]:
    found = []
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            places: dict[str, dict[str, Any]] = {"query": {}, "path": {}}
            for each in said.get("parameters", ()):
                places[each["in"]][each["name"]] = each["schema"]
            body = said.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            name = f"{method.upper()} {path}"
            found.append(Operation(name, method.upper(), path, places["query"], places["path"], body))
    return found


class Client:
    """Requests of one run."""

    def __init__(self, station: Station, report: Report, rng: random.Random) -> None:
        self._station = station
        self._report = report
        self._rng = rng
        document = station.ask("GET", "/openapi.json")
        self.operations = operations(document)
        self._components = document["components"]["schemas"]
        self._grow = Grow(rng, self._known)
        self._weights = [RARE.get(each.name, OFTEN.get(each.name, 1)) for each in self.operations]

    def _known(self, name: str) -> Any:
        if name in ("token", "ack", "drop", "release"):
            tokens = self._station.deliveries()
            return self._rng.choice(tokens) if tokens else "0.1.1"
        return None

    def one(self) -> None:
        missing = [each for each in self.operations if not self._report.calls[each.name]]
        if missing and self._rng.random() < 0.3:
            operation = self._rng.choice(missing)
        else:
            operation = self._rng.choices(self.operations, self._weights)[0]
        target, body, hostile = self._drawn(operation)
        self._ask(operation, target, body, hostile)

    def _drawn(self, operation: Operation) -> tuple[str, bytes | None, int]:
        """Where to, with what body, and how many values of it are hostile."""
        rng = self._rng
        parts = {
            name: self._grow.schema(schema, self._components, name)
            for name, schema in operation.in_path.items()
        }
        query = {
            name: self._grow.schema(schema, self._components, name)
            for name, schema in operation.query.items()
            if rng.random() < 0.3
        }
        body = None
        if operation.body is not None:
            body = self._grow.schema(operation.body, self._components)
        hostile = int(rng.random() < 0.75)
        where = rng.choice([*["body"] * (6 if operation.body else 0), "query", *parts])
        if hostile and where == "body":
            body = spoil(body, rng, JSON_VALUES)
        elif hostile and where == "query":
            query[rng.choice([*operation.query, "unknown"])] = rng.choice(JSON_VALUES)
        elif hostile:
            parts[where] = rng.choice(JSON_VALUES)
        path = operation.path
        for name, value in parts.items():
            path = path.replace(f"{{{name}}}", _in_url(value, safe="/*:.~"))
        said = "&".join(f"{name}={_in_url(value)}" for name, value in query.items())
        return path + ("?" + said if said else ""), None if body is None else as_json(body), hostile

    def _ask(self, operation: Operation, target: str, body: bytes | None, hostile: int) -> None:
        headers = {"authorization": f"Bearer {self._station.token}"}
        if body is not None:
            headers["content-type"] = self._rng.choice(
                ("application/json",) * 30 + ("text/plain", "application/json; charset=x")
            )
        self._station.line = f"{operation.method} {target[:600]} {body[:800] if body else b''!r}"
        connection = http.client.HTTPConnection("127.0.0.1", self._station.server.port, timeout=PATIENCE_S)
        try:
            connection.request(operation.method, target[:60_000], body, headers)
            answer = connection.getresponse()
            said = answer.read()
        except Exception as error:
            self._report.called(operation.name, refused=True, hostile=hostile)
            self._station.surprise(operation.name, "no answer", f"{type(error).__name__}: {error}")
            return
        finally:
            connection.close()
        self._report.called(operation.name, refused=answer.status >= 400, hostile=hostile)
        self._judge(operation, answer.status, said)

    def _judge(self, operation: Operation, status: int, said: bytes) -> None:
        if status < 400:
            return
        try:
            problem = json.loads(said)
            code, hint = problem["code"], problem["hint"]
        except (ValueError, KeyError, TypeError):
            if status != 400 or b"Invalid HTTP" not in said:
                self._station.surprise(operation.name, f"{status} is no problem document", repr(said[:300]))
            return
        if not hint:
            self._station.surprise(operation.name, f"{status} {code} has no hint", repr(said[:300]))
        if status >= 500 and code not in BACK_PRESSURE:
            self._station.surprise(operation.name, f"{status} {code}", repr(said[:300]))
        if len(said) > 8_000:
            self._station.surprise(operation.name, f"a problem of {len(said)} bytes")


def _in_url(value: Any, safe: str = "") -> str:
    if isinstance(value, list):
        value = value[0] if value else ""
    data = bytes(value) if isinstance(value, Bytes) else str(value).encode()
    return quote(data[:2_000], safe=safe) or "%20"


def run(calls: int, seed: int) -> Report:
    """A run in a folder of its own."""
    logging.getLogger("relaymesh").setLevel(logging.CRITICAL)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder:
        report = Report("http", seed, [])
        station = Station(Path(folder), report, rng)
        try:
            client = Client(station, report, rng)
            report.calls.update(dict.fromkeys([each.name for each in client.operations], 0))
            lives(station, calls, client.one)
        finally:
            station.stop()
        return report
