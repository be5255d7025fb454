"""Single requests to a node over HTTP, for programs that make a few and end: the command line."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import msgspec

from relaymesh.client.problem import answer_of
from relaymesh.errors import InvalidSettings, Unreachable

Answer = TypeVar("Answer")
ANSWER_S = 30.0


class Asking:
    """One connection, one request at a time. A node that does not answer is `Unreachable` at once."""

    def __init__(self, url: str, token: str | None) -> None:
        token = token or os.environ.get("RELAYMESH_TOKEN") or None
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        verify = url.startswith("https:")  # loading the certificates takes half a second
        try:
            self._http = httpx.Client(base_url=url, headers=headers, verify=verify, trust_env=False)
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InvalidSettings(
                f"{url} is not the address of a node: {error}", hint="http://host:port"
            ) from error
        self.url = url

    def get(self, path: str, answer: type[Answer], *, wait_s: float = 0.0, **query: Any) -> Answer:
        return self._ask("GET", path, None, answer, wait_s, query)

    def post(self, path: str, body: msgspec.Struct | None, answer: type[Answer]) -> Answer:
        return self._ask(
            "POST", path, msgspec.json.encode(body) if body is not None else b"{}", answer, 0, {}
        )

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        answer: type[Answer],
        wait_s: float,
        query: dict[str, Any],
    ) -> Answer:
        headers = {} if body is None else {"content-type": "application/json"}
        try:
            response = self._http.request(
                method, path, content=body, params=query or None, headers=headers, timeout=wait_s + ANSWER_S
            )
        except httpx.TransportError as error:
            raise Unreachable(
                f"the node at {self.url} does not answer: {type(error).__name__} {error}".strip(),
                hint="is it running? relaymesh serve starts one, and prints its address",
            ) from error
        return answer_of(response, answer)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
