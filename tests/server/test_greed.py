"""Greed is bounded: what one client sends or asks for is bounded in count, in bytes and in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from relaymesh.kernel.commands import OpenMailbox
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings
from relaymesh.server.ws import sessions as sessions_module
from relaymesh.wire import frames
from relaymesh.wire.bundles import BUNDLE_FRAMES_MAX, bundle
from tests.server.lag import Lag
from tests.server.serving import Api, serving
from tests.waiting import until_async

TURN_S = 0.2
"""A turn of the loop takes some milliseconds; these tests run beside others. Unbounded it takes seconds."""

FIELDS = b",".join(b'"f%d":0' % number for number in range(800_000))
LARGE = {
    "unknown fields": b'{"to":"coder","content":0,'
    + b",".join(b'"f%d":0' % n for n in range(800_000))
    + b"}",
    "metadata": b'{"to":"coder","content":0,"metadata":{'
    + b",".join(b'"f%d":0' % n for n in range(800_000))
    + b"}}",
    "brackets": b'{"to":"coder","content":[' + b"[]," * 3_000_000 + b"[]]}",
    "messages": b"[" + b"{}," * 5_000_000 + b"{}]",
    "numbers": b'{"to":"coder","content":[' + b"0," * 4_000_000 + b"0]}",
}


@pytest.mark.parametrize("what", LARGE)
async def test_the_loop_turns_while_a_large_body_is_looked_at(tmp_path: Path, what: str) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        headers = {"content-type": "application/json"}
        async with Lag() as lag:
            answer = await api.agent("planner").post("/v1/messages", content=LARGE[what], headers=headers)
        assert answer.status_code in (202, 400), answer.text
        assert (answer.status_code == 202) == (what in ("brackets", "numbers"))
        assert lag.longest < TURN_S


async def test_the_loop_turns_while_many_mailboxes_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for number in range(3_000):
            await api.served.session.execute(OpenMailbox(f"default/box{number}", MailboxSettings()))
        reader = api.client(["read"])
        async with Lag() as lag:
            answers = await asyncio.gather(*[reader.get("/metrics") for _ in range(5)])
            stats = (await reader.get("/v1/stats")).json()
            agents = (await reader.get("/v1/agents")).json()
        assert {answer.status_code for answer in answers} == {200}
        assert answers[0].text.count('relaymesh_queue_depth{mailbox="default/box') == 3_000
        assert len(stats["mailboxes"]) == len(agents["agents"]) == 3_000
        assert lag.longest < TURN_S


async def test_counters_of_many_mailboxes_are_counted_once_for_all_who_ask(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for number in range(300):
            await api.served.session.execute(OpenMailbox(f"default/box{number}", MailboxSettings()))
        before = (await api.admin.get("/v1/stats")).json()
        await api.send("box0", 1)
        assert (await api.admin.get("/v1/stats")).json() == before
        await until_async(partial(holds, api, "default/box0", 1))


async def holds(api: Api, mailbox: str, count: int) -> bool:
    stats = (await api.admin.get("/v1/stats")).json()
    return bool(stats["mailboxes"][mailbox]["pending"] == count)


async def test_a_long_answer_is_charged_to_the_rate_of_its_reader(tmp_path: Path) -> None:
    settings = ServerSettings(security=SecuritySettings(write_rate=2_000, write_burst=1))
    async with serving(tmp_path, settings=settings) as api:
        await api.open("coder")
        await api.send("coder", "x" * 4_000_000)
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await api.client(["read"]).get("/v1/mailboxes/coder")
        assert len(answer.content) > 4_000_000
        assert loop.time() - began > 0.8 * 4_000_000 / 16_384 / 2_000
        assert (await api.client(["read"]).get("/v1/mailboxes/coder", params={"limit": 0})).status_code == 200


# -- the WebSocket


class Socket:
    """A client that speaks MessagePack frames straight to the application."""

    def __init__(self, api: Api, token: str) -> None:
        self._incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._incoming.put_nowait({"type": "websocket.connect"})
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.reads = asyncio.Event()
        self.reads.set()
        self.closed = 0
        self.scope = {
            "type": "websocket",
            "path": "/v1/ws",
            "query_string": b"",
            "scheme": "ws",
            "headers": [(b"host", b"127.0.0.1:7717"), (b"authorization", f"Bearer {token}".encode())],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 7717),
            "subprotocols": [frames.SUBPROTOCOL_MSGPACK],
        }
        self._task = asyncio.create_task(api.app(self.scope, self._incoming.get, self._send))

    @property
    def account(self) -> Any:
        return self.scope["relaymesh.account"]

    async def _send(self, message: Any) -> None:
        if message["type"] == "websocket.send":
            await self.reads.wait()
            self.sent.put_nowait(msgspec.msgpack.decode(message["bytes"]))
        elif message["type"] == "websocket.close":
            self.closed = message["code"]
            self.leave()

    def tell(self, *given: Any) -> None:
        self.say(bundle([frames.encode(frame) for frame in given]))

    def say(self, data: bytes) -> None:
        self._incoming.put_nowait({"type": "websocket.receive", "bytes": data})

    async def ask(self, frame: Any) -> Any:
        self.tell(frame)
        async with asyncio.timeout(30):
            return await self.sent.get()

    async def call(self, ref: int, name: str, **arguments: Any) -> Any:
        return await self.ask(frames.Call(ref, name, msgspec.Raw(msgspec.msgpack.encode(arguments))))

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def left(self) -> None:
        self.leave()
        async with asyncio.timeout(30):
            await self._task


@asynccontextmanager
async def connected(api: Api, *scopes: str, hello: frames.Hello | None = None) -> AsyncIterator[Socket]:
    token = api.token(scopes)
    api._known()
    socket = Socket(api, token)
    assert (await socket.ask(hello or frames.Hello("1.1")))["op"] == "welcome"
    try:
        yield socket
    finally:
        await socket.left()


async def test_a_bundle_of_too_many_frames_is_refused_unread(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, connected(api, "read") as socket:
        data = bundle([frames.encode(frames.Ping(1))] * 1_000_000)
        async with Lag() as lag:
            socket.say(data)
            await until_async(lambda: socket.closed != 0)
        assert socket.closed == 1007
        assert socket.sent.empty()
        assert lag.longest < TURN_S


async def test_every_frame_of_a_bundle_is_charged(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, connected(api, "read") as socket:
        before = socket.account._bucket.level
        socket.tell(*[frames.Ping(number) for number in range(BUNDLE_FRAMES_MAX)])
        for _ in range(BUNDLE_FRAMES_MAX):
            await socket.sent.get()
        assert before - socket.account._bucket.level > BUNDLE_FRAMES_MAX / 2  # it fills meanwhile


async def test_messages_of_a_frame_are_charged(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, connected(api, "agent:coder") as socket:
        await api.open("coder")
        socket.account._rate = 0.001
        socket.account.take(asyncio.get_running_loop().time(), 0)
        level = socket.account._bucket.level
        messages = [Envelope(f"id{number}", "coder", b"1") for number in range(5_000)]
        assert (await socket.ask(frames.Send(1, [("coder", messages)])))["op"] == "receipts"
        assert level - socket.account._bucket.level == pytest.approx(5_000 / 25, abs=1)


async def test_a_send_of_too_many_messages_is_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, connected(api, "agent:coder") as socket:
        await api.open("coder")
        data = frames.encode(frames.Send(7, [("coder", [Envelope("i", "coder", b"1")] * 400_000)]))
        async with Lag() as lag:
            socket.say(data)
            refused = await socket.sent.get()
        assert (refused["op"], refused["ref"], refused["code"]) == ("problem", 7, "INVALID_MESSAGE")
        assert lag.longest < TURN_S
        halves = [("coder", [Envelope(f"{half}{n}", "coder", b"1") for n in range(6_000)]) for half in "ab"]
        assert (await socket.ask(frames.Send(8, halves)))["code"] == "INVALID_MESSAGE"
        assert (await socket.ask(frames.Ping(9)))["op"] == "pong"


async def test_heavy_content_in_a_frame_is_looked_at_in_turns(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, connected(api, "agent:coder") as socket:
        await api.open("coder")
        heavy = Envelope("heavy", "coder", b"[" + b"[]," * 1_000_000 + b"[]]")
        async with Lag() as lag:
            assert (await socket.ask(frames.Send(1, [("coder", [heavy])])))["op"] == "receipts"
        assert lag.longest < TURN_S


async def test_a_peek_is_shown_in_pages(tmp_path: Path) -> None:
    async with serving(tmp_path) as api, connected(api, "read") as socket:
        await api.open("coder")
        for number in range(10):
            await api.send("coder", f"{number}" + "x" * 500_000)
        seen: list[int] = []
        more, after = True, 0
        while more:
            answer = await socket.call(after + 1, "peek", mailbox="coder", limit=100, after=after)
            page, more = answer["value"], answer.get("more", False)
            assert 1 <= len(page) <= 4
            seen += [row[1] for row in page]
            after = seen[-1]
        assert len(set(seen)) == 10
        shown = (await api.admin.get("/v1/mailboxes/coder", params={"limit": 100})).json()
        assert (len(shown["entries"]), shown["more"]) == (4, True)


async def test_answers_to_reads_are_not_kept_and_those_to_writes_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions_module, "ANSWERS_BYTES_MAX", 10_000)
    monkeypatch.setattr(sessions_module, "KEPT_BYTES_MAX", 15_000)
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", "x" * 1_000_000)
        token = api.token(["read", "agent:coder"])
        api._known()
        sockets = [Socket(api, token) for _ in range(4)]
        for number, socket in enumerate(sockets):
            await socket.ask(frames.Hello("1.1"))
            await socket.call(1, "peek", mailbox="coder", limit=10)
            for ref in range(2, 6):
                messages = [Envelope(f"{number} {ref} {n}", "coder", b"1") for n in range(1_000)]
                await socket.ask(frames.Send(ref, [("coder", messages)]))
            assert 0 < socket.account.kept <= 25_000
            await socket.left()
        account = sockets[0].account
        assert account.kept <= 15_000
        assert (account.incoming, account.outgoing) == (0, 0)


async def test_what_a_client_does_not_read_ends_its_connection_and_is_given_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        for number in range(5):
            await api.send("coder", f"{number}" + "x" * 2_000_000)
        async with connected(api, "read") as socket:
            socket.reads.clear()
            for ref in range(1, 60):
                arguments = msgspec.Raw(msgspec.msgpack.encode({"mailbox": "coder", "limit": 100}))
                socket.tell(frames.Call(ref, "peek", arguments))
            await until_async(lambda: socket.closed != 0)
            assert socket.closed == 1013
            socket.reads.set()
        assert socket.account.outgoing == 0


async def test_expectations_end_with_their_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "DETACHED_S", 0.05)
    async with serving(tmp_path) as api:
        await api.open("coder")
        box = api.served.node.core.read(lambda kernel: kernel.state.mailboxes["default/coder"])
        async with connected(api, "agent:coder") as socket:
            await socket.call(1, "expect", mailbox="coder", correlationId="answer")
            assert "answer" in box.expected
        await until_async(lambda: not box.expected)
        async with connected(api, "agent:coder") as socket:
            await socket.call(1, "expect", mailbox="coder", correlationId="answer")
            socket.tell(frames.Goodbye())
            await until_async(lambda: not box.expected)


async def test_a_sender_for_whom_too_much_is_kept_is_refused_and_settles_go_on(tmp_path: Path) -> None:
    settings = ServerSettings(security=SecuritySettings(kept_bytes_max=100_000))
    async with serving(tmp_path, settings=settings) as api:
        await api.open("coder")
        greedy, other = api.agent("planner"), api.agent("coder")
        message = {"to": "coder", "content": "x" * 30_000}
        statuses = [(await greedy.post("/v1/messages", json=message)).status_code for _ in range(5)]
        assert statuses[0] == 202
        refused = await greedy.post("/v1/messages", json=message)
        assert (refused.status_code, refused.json()["code"]) == (429, "OVER_BUDGET")
        assert (await other.post("/v1/messages", json={"to": "coder", "content": 1})).status_code == 202
        tokens = [each["token"] for each in await api.receive("coder", max=100)]
        assert {each["outcome"] for each in await api.settle(acks=tokens)} == {"acked"}
        assert (await greedy.post("/v1/messages", json=message)).status_code == 202


EACH = {
    "expressions": {"agent": "coder", "input": "${{ input.l.map(x, x + x).size() }}"},
    "included workflows": {"workflow": "large"},
    "whole inputs": {"agent": "coder", "input": "${{ input }}"},
}


@pytest.mark.parametrize("what", EACH)
async def test_the_loop_turns_while_the_steps_of_a_task_are_worked_out(tmp_path: Path, what: str) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        writer = api.client(["write", "read"])
        large = {"workflow": "large", "steps": {"a": {"agent": "coder", "input": ["x" * 400] * 400}}}
        assert (await writer.post("/v1/workflows", json={"workflow": large})).status_code == 201
        step = {"for_each": "${{ input.items }}", **EACH[what]}
        plan = {"workflow": "w", "steps": {"each": step}}
        body = {"workflow": plan, "input": {"l": ["x" * 120] * 400, "items": list(range(100))}}
        async with Lag() as lag:
            submitted = await writer.post("/v1/tasks", json=body)
            assert submitted.status_code == 201, submitted.text
            await until_async(partial(sends, api, submitted.json()["task"]))
        assert lag.longest < TURN_S


async def sends(api: Api, task: str) -> bool:
    """Whether every item of the task was sent, or went on as the steps of another workflow."""
    shown = (await api.client(["read"]).get(f"/v1/tasks/{task}")).json()
    assert shown["status"] in ("PENDING", "RUNNING"), shown
    return len([step for step in shown["steps"] if step.get("sentAt")]) >= 100
