"""A client that speaks frames by hand, in JSON, well or badly."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Self

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.client.serving import ServerThread

PATIENCE_S = 60.0


class Raw:
    """One connection. `ask` sends a frame and answers with the frame of the same ref."""

    def __init__(
        self,
        server: ServerThread,
        token: str,
        *,
        hello: dict[str, Any] | None = None,
        subprotocol: str = "relaymesh.v1.json",
        **options: Any,
    ) -> None:
        self._opened = connect(
            server.url.replace("http", "ws") + "/v1/ws",
            additional_headers={"Authorization": f"Bearer {token}"},
            subprotocols=[Subprotocol(subprotocol)],
            compression=None,
            **options,
        )
        self.socket: ClientConnection = self._opened.__enter__()
        self._ref = 0
        self.pushed: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {}
        if hello is not None or subprotocol == "relaymesh.v1.json":
            self.tell(op="hello", **{"protocol": "1.1", **(hello or {})})
            self.welcome = self.next()

    def tell(self, **frame: Any) -> None:
        self.socket.send(json.dumps(frame))

    def next(self, timeout: float = PATIENCE_S) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self.socket.recv(timeout=timeout))
        return frame

    def ask(self, **frame: Any) -> dict[str, Any]:
        self._ref += 1
        self.tell(ref=self._ref, **frame)
        while True:
            answer = self.next()
            if answer.get("ref") == self._ref:
                return answer
            self.pushed.append(answer)

    def deliveries(self) -> list[dict[str, Any]]:
        """The next deliveries that were pushed."""
        while True:
            frame = self.pushed.pop(0) if self.pushed else self.next()
            if frame["op"] == "deliveries":
                found: list[dict[str, Any]] = frame["deliveries"]
                return found

    def nothing_comes(self, seconds: float = 0.3) -> bool:
        if self.pushed:
            return False
        try:
            self.pushed.append(self.next(seconds))
        except TimeoutError:
            return True
        return False

    def closed(self) -> tuple[int, str]:
        """Read on until the node closes; its code and reason."""
        try:
            while True:
                self.socket.recv(timeout=PATIENCE_S)
        except ConnectionClosed:
            frame = self.socket.protocol.close_rcvd
            return (frame.code, frame.reason) if frame is not None else (1006, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.__exit__(kind, error, trace)
