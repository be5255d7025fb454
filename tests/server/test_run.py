"""A server's life on this loop: what it refuses to begin with, and that its stop is in order."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaymesh import Mesh
from relaymesh.errors import DirectoryInUse, InvalidSettings
from relaymesh.node.settings import MeshSettings
from relaymesh.server.listening import listen, url_of
from relaymesh.server.run import NodeServer, Running
from relaymesh.server.settings import ServerSettings
from relaymesh.server.signals import OnStop
from relaymesh.wire.parameters import graceful_timeout_default
from tests.server.serving import PATIENCE_S
from tests.waiting import until_async


class Signals:
    """Signals that the test sends."""

    def __init__(self) -> None:
        self.send: OnStop = print
        self.finished = False

    def install(self, loop: asyncio.AbstractEventLoop, on_stop: OnStop) -> None:
        self.send = on_stop

    def finish(self) -> None:
        self.finished = True


class Life:
    """A server that runs beside the test."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.signals = Signals()
        self.announced: asyncio.Queue[Running] = asyncio.Queue()
        self.server = NodeServer(
            directory,
            MeshSettings(),
            ServerSettings(**{"port": 0, **settings}),
            announce=self.announced.put_nowait,
            signals=self.signals,
        )

    async def start(self) -> Running:
        self.task = asyncio.create_task(self.server.run())
        announced = asyncio.create_task(self.announced.get())
        await asyncio.wait({self.task, announced}, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not announced.done():
            announced.cancel()
            self.task.result()
        return await announced


async def test_it_serves_until_it_is_asked_to_stop_and_leaves_nothing_behind(tmp_path: Path) -> None:
    life = Life(tmp_path)
    running = await life.start()
    token = running.token_file.read_text()
    async with httpx.AsyncClient(base_url=running.url, timeout=PATIENCE_S) as client:
        assert (await client.get("/healthz")).status_code == 200
        answer = await client.get("/v1/node", headers={"authorization": f"Bearer {token}"})
        assert answer.json()["namespace"] == "*"
    life.signals.send("SIGTERM")
    assert await asyncio.wait_for(life.task, PATIENCE_S) is True
    assert life.signals.finished
    assert [each.name for each in (tmp_path / "server").iterdir() if "audit" not in each.name] == []
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*_place(running.url))


def _place(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


async def test_a_second_server_on_the_directory_is_refused_and_its_socket_is_free_again(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path)
    await life.start()
    second = Life(tmp_path)
    with pytest.raises(DirectoryInUse):
        await second.start()
    life.signals.send("SIGINT")
    assert await asyncio.wait_for(life.task, PATIENCE_S)


async def test_tokens_that_cannot_be_read_are_an_error_and_leave_the_directory_free(tmp_path: Path) -> None:
    life = Life(tmp_path)
    await life.start()
    life.signals.send("SIGTERM")
    await asyncio.wait_for(life.task, PATIENCE_S)
    (tmp_path / "server" / "tokens.json").write_text("nonsense")
    with pytest.raises(InvalidSettings, match=r"tokens\.json"):
        await Life(tmp_path).start()
    (tmp_path / "server" / "tokens.json").unlink()
    (tmp_path / "server" / "local.token").mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError, match=r"local\.token"):
        await Life(tmp_path).start()
    Mesh(tmp_path).close()


async def test_a_second_server_leaves_the_first_ones_token_alone(tmp_path: Path) -> None:
    life = Life(tmp_path)
    running = await life.start()
    token = running.token_file.read_text()
    with pytest.raises(DirectoryInUse):
        await Life(tmp_path).start()
    assert running.token_file.read_text() == token
    life.signals.send("SIGTERM")
    await asyncio.wait_for(life.task, PATIENCE_S)


async def test_a_poll_whose_socket_closes_is_over_and_burned_nothing(tmp_path: Path) -> None:
    """Through uvicorn and the guard, as a client that is killed would do it."""
    life = Life(tmp_path)
    running = await life.start()
    headers = {"authorization": f"Bearer {running.token_file.read_text()}"}
    async with httpx.AsyncClient(base_url=running.url, headers=headers, timeout=PATIENCE_S) as client:
        await client.put("/v1/mailboxes/coder")

        async def polls(count: int) -> bool:
            return f"relaymesh_web_polls {count}" in (await client.get("/metrics")).text

        body = b'{"waitMs": 60000}'
        head = f"POST /v1/mailboxes/coder/receive HTTP/1.1\r\nHost: {running.url.removeprefix('http://')}\r\n"
        head += f"Authorization: {headers['authorization']}\r\nContent-Type: application/json\r\n"
        _, writer = await asyncio.open_connection(*_place(running.url))
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await until_async(lambda: polls(1))
        writer.close()
        await until_async(lambda: polls(0))
        message = {"from": "planner", "to": "coder", "content": 1}
        assert (await client.post("/v1/messages", json=message)).status_code == 202
        answer = await client.post("/v1/mailboxes/coder/receive", json={})
        assert [each["attempt"] for each in answer.json()["deliveries"]] == [1]
    life.signals.send("SIGTERM")
    assert await asyncio.wait_for(life.task, PATIENCE_S)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"host": "0.0.0.0"}, "no TLS"),
        ({"host": "192.0.2.1"}, "no TLS"),
        ({"tls_cert": "nowhere.pem", "tls_key": "nowhere.pem"}, "TLS files"),
    ],
)
async def test_what_must_not_be_served_is_refused_before_anything_is_opened(
    tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    data = tmp_path / "data"
    with pytest.raises(InvalidSettings, match=says):
        await Life(data, **settings).start()
    assert not data.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"port": -1},
        {"port": 65_536},
        {"graceful_timeout": -1},
        {"graceful_timeout": 3_601},
        {"body_bytes_max": 0},
        {"receive_waits_max": 0},
        {"tls_cert": "x.pem"},
        {"tls_key": "x.pem"},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        ServerSettings(**settings)


def test_windows_gives_a_stop_less_time() -> None:
    assert (graceful_timeout_default("posix"), graceful_timeout_default("nt")) == (15, 5)


def test_an_address_that_cannot_be_had_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSettings, match=f"127.0.0.1:{port}") as caught:
            listen(ServerSettings(port=port))
        assert "--port" in caught.value.hint
    with pytest.raises(InvalidSettings, match="no address"):
        listen(ServerSettings(host="a..b"))


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:"), ("0.0.0.0", "http://127.0.0.1:")]
)
def test_the_url_is_one_that_this_machine_can_use(host: str, url: str) -> None:
    settings = ServerSettings(host=host, port=0)
    with listen(settings) as bound:
        assert url_of(settings, bound) == f"{url}{bound.getsockname()[1]}"
