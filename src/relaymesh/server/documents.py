"""The documents of the server: OpenAPI, AsyncAPI, the schemas, an HTML page, and `/`, which lists them.

None of it holds data of the mesh, so none of it needs a credential.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from relaymesh.server.asyncapi import asyncapi
from relaymesh.server.exchange import Exchange, Reply
from relaymesh.server.openapi import openapi
from relaymesh.server.reference_page import STYLE, reference_page
from relaymesh.server.routing import Operation
from relaymesh.server.schemas import SCHEMA_FILES, as_text, schemas
from relaymesh.server.version import VERSION
from relaymesh.wire import frames

HTML = b"text/html; charset=utf-8"
SCHEMA = b"application/schema+json"

PAGE_POLICY = (
    b"content-security-policy",
    b"default-src 'none'; style-src 'sha256-%s'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    % b64encode(sha256(STYLE.encode()).digest()),
)
"""The page may have its own style, and nothing else."""
SCHEMA_PATHS = tuple(f"/schemas/{name}" for name in SCHEMA_FILES)
PATHS = ("/", "/openapi.json", "/asyncapi.json", "/docs", *SCHEMA_PATHS)
"""Open to every client."""


class Index(msgspec.Struct, frozen=True):
    """`GET /`: where everything else is."""

    name: str = "RelayMesh"
    version: str = VERSION
    docs: str = "/docs"
    openapi: str = "/openapi.json"
    asyncapi: str = "/asyncapi.json"
    schemas: tuple[str, ...] = SCHEMA_PATHS
    websocket: str = frames.PATH
    health: str = "/healthz"
    ready: str = "/readyz"
    token: str = "every other path needs `Authorization: Bearer TOKEN`: relaymesh token create makes one"


class Documents:
    """The documents of one routing table, made when the first of them is asked for."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._replies: dict[str, Reply] = {}

    @property
    def routes(self) -> list[Operation]:
        """One for each path."""
        return [Operation("GET", path, self.show) for path in PATHS]

    async def show(self, exchange: Exchange) -> Reply:
        """The document of this path."""
        if not self._replies:
            self._replies = self._made()
        path: str = exchange.scope["path"]
        return self._replies[path]

    def _made(self) -> dict[str, Reply]:
        document = openapi(self._operations)
        return {
            "/": Reply(200, msgspec.json.encode(Index())),
            "/openapi.json": Reply(200, msgspec.json.encode(document)),
            "/asyncapi.json": Reply(200, msgspec.json.encode(asyncapi())),
            "/docs": Reply(200, reference_page(document).encode(), HTML, (PAGE_POLICY,)),
            **{
                f"/schemas/{name}": Reply(200, as_text(schema).encode(), SCHEMA)
                for name, schema in schemas().items()
            },
        }


def document_routes(operations: Sequence[Operation]) -> list[Operation]:
    """Routes to the documents of these operations, to stand behind them in the routing table."""
    return Documents(operations).routes
