"""The guard around a small application: what it lets through, what it adds, what it writes down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from relaymesh.server.security import sockets as sockets_module
from relaymesh.server.security import tokens as tokens_module
from relaymesh.server.security.audit import AuditEvent
from relaymesh.server.security.guard import Guard
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.principal import Principal, principal_of
from relaymesh.server.security.tokens import TokenFile, Tokens
from relaymesh.server.security.trail import trail_of
from relaymesh.server.settings import ServerSettings

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]


class Written:
    """Stands in for the audit log: keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[AuditEvent] = []

    def now_ms(self) -> int:
        return 7

    def append(self, event: AuditEvent) -> None:
        self.events.append(event)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it saw."""
    body, more = b"", True
    while more and scope["method"] not in ("GET", "HEAD"):
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    principal = scope.get("relaymesh.principal")
    scope["relaymesh.route"] = "/the/{route}"
    seen = {
        "method": scope["method"],
        "path": scope["path"],
        "body": body.decode(),
        "token": principal.token_id if isinstance(principal, Principal) else None,
    }
    headers = [(b"content-type", b"application/json"), (b"server", b"leaky/1.0")]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(seen)})


class House:
    """A guard, an application behind it, and a token for it."""

    def __init__(self, folder: Path, app: App = echo, body_bytes_max: int = 1_000, **security: Any) -> None:
        self.file = TokenFile(folder)
        self.token, self.text = self.file.create(["read", "write"], label="tester")
        self.audit = Written()
        self.served = SimpleNamespace(
            settings=ServerSettings(body_bytes_max=body_bytes_max, security=SecuritySettings(**security)),
            tokens=Tokens(folder),
            audit=self.audit,
            counts=SimpleNamespace(problems=0, write_get_compat=0, write_rate_limited=0),
        )
        self.guard = Guard(app, self.served)  # type: ignore[arg-type]

    def scope(self, method: str = "GET", path: str = "/v1/stats", **more: Any) -> dict[str, Any]:
        path, _, query = path.partition("?")
        headers = {"host": "127.0.0.1:7717", "authorization": f"Bearer {self.text}"} | more.pop("headers", {})
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "scheme": "http",
            "client": (more.pop("peer", "127.0.0.1"), 50_000),
            "server": ("127.0.0.1", 7717),
            "headers": [(k.encode(), v.encode()) for k, v in headers.items() if v is not None],
        }
        return scope | dict(more.get("extra", {}))

    async def post(self, text: str, size: int = 1_000) -> Heard:
        headers = {"authorization": f"Bearer {text}"}
        return await self.ask("POST", "/v1/messages", body=[b"x" * size], headers=headers)

    async def ask(self, *words: str, body: list[bytes] | None = None, **more: Any) -> Heard:
        parts = list(body or [b""])

        async def receive() -> Message:
            if parts:
                part = parts.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(parts)}
            await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        heard = Heard()
        await self.guard(self.scope(*words, **more), receive, heard.send)
        return heard


class Heard:
    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.raw = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert self.status == 0
            self.status = message["status"]
            names = [name for name, _ in message["headers"]]
            assert len(names) == len(set(names))
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.raw += message["body"]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.raw)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def run(story: Coroutine[Any, Any, Heard]) -> Heard:
    return asyncio.run(story)


# -- what passes, and what is added


def test_a_good_request_reaches_the_application_with_its_principal(house: House) -> None:
    heard = run(house.ask("POST", "/v1/messages", body=[b"ab", b"c"]))
    assert heard.status == 202
    assert heard.json == {"method": "POST", "path": "/v1/messages", "body": "abc", "token": house.token.id}


def test_every_answer_is_safe_in_a_browser_and_names_no_server(house: House) -> None:
    for heard in (run(house.ask()), run(house.ask(headers={"authorization": None}))):
        assert "default-src 'none'" in heard.headers["content-security-policy"]
        assert heard.headers["x-content-type-options"] == "nosniff"
        assert heard.headers["cache-control"] == "no-store"
        assert heard.headers["x-frame-options"] == "DENY"
        assert "server" not in heard.headers


def test_an_application_may_say_its_own_policy(tmp_path: Path) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"Content-Security-Policy", b"script-src 'self'"), (b"Cache-Control", b"max-age=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    heard = run(House(tmp_path, page).ask())
    assert heard.headers["Content-Security-Policy"] == "script-src 'self'"
    assert "content-security-policy" not in heard.headers


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_is_told_without_a_credential(house: House, path: str) -> None:
    heard = run(house.ask("GET", path, headers={"authorization": None}))
    assert heard.json["token"] is None
    assert run(house.ask("POST", path, headers={"authorization": None})).status == 401


def test_a_principal_cannot_be_brought_along(house: House) -> None:
    forged = Principal("forged", "", "*", frozenset({"admin"}))
    heard = run(house.ask("GET", "/healthz", extra={"relaymesh.principal": forged}))
    assert heard.json["token"] is None


def test_a_mistake_behind_the_guard_is_a_problem_without_its_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("the secret place is /x")

    house = House(tmp_path, broken)
    heard = run(house.ask("POST", "/v1/messages"))
    assert (heard.status, heard.json["code"]) == (500, "INTERNAL")
    assert "secret" not in heard.raw.decode()
    assert "secret place" in caplog.text
    assert house.text not in caplog.text


# -- bodies


@pytest.mark.parametrize("length", ["1001", "99999999999999999999", "-1", "1e3", "٣"])
def test_a_length_that_is_too_large_or_no_number_is_refused_before_the_body(
    house: House, length: str
) -> None:
    heard = run(house.ask("POST", "/v1/messages", body=[b""], headers={"content-length": length}))
    assert heard.status in (400, 413)


def test_a_body_without_a_length_is_cut_off_at_the_limit(house: House) -> None:
    taken = 0

    async def receive() -> Message:
        nonlocal taken
        taken += 400
        return {"type": "http.request", "body": b"x" * 400, "more_body": taken < 10_000_000}

    heard = Heard()
    asyncio.run(house.guard(house.scope("POST", "/v1/messages"), receive, heard.send))
    assert heard.status == 413
    assert heard.headers["connection"] == "close"
    assert taken < 1_100_000  # what a refused client may still say
    assert house.guard._bodies.taken == 0


class Holding:
    """An application that holds its requests until it is told to go on."""

    def __init__(self) -> None:
        self.count = 0
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.count += 1
        await self.go_on.wait()
        await echo(scope, receive, send)

    async def holds(self, count: int) -> None:
        for _ in range(1_000):
            if self.count == count:
                return
            await asyncio.sleep(0)
        pytest.fail(f"{self.count} requests came, not {count}")


def test_the_bodies_of_all_requests_together_are_bounded(tmp_path: Path) -> None:
    holding = Holding()
    house = House(tmp_path, holding, bodies_bytes_max=4_000)

    async def story() -> Heard:
        others = [house.file.create(["write"])[1] for _ in range(4)]
        held = []
        for number, text in enumerate(others):
            held.append(asyncio.create_task(house.post(text)))
            await holding.holds(number + 1)
        refused = await house.post(house.text)
        holding.go_on.set()
        assert [(await each).status for each in held] == [202] * 4
        assert (await house.post(house.text)).status == 202
        return refused

    heard = run(story())
    assert (heard.status, heard.json["code"]) == (503, "TOO_MANY_BODIES")
    assert house.guard._bodies.taken == 0


def test_the_bodies_of_one_credential_stop_that_credential_alone(tmp_path: Path) -> None:
    holding = Holding()
    house = House(tmp_path, holding, bodies_bytes_max=4_000)

    async def story() -> Heard:
        other = house.file.create(["write"])[1]
        held = [asyncio.create_task(house.post(house.text))]
        await holding.holds(1)
        refused = await house.post(house.text)
        held.append(asyncio.create_task(house.post(other)))
        await holding.holds(2)
        holding.go_on.set()
        assert [(await each).status for each in held] == [202, 202]
        assert (await house.post(house.text)).status == 202
        return refused

    heard = run(story())
    assert (heard.status, heard.json["code"], heard.headers["retry-after"]) == (429, "RATE_LIMITED", "1")


def test_no_body_is_taken_from_a_credential_that_may_only_read(tmp_path: Path) -> None:
    house = House(tmp_path)
    reader = house.file.create(["read"])[1]

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}

    async def story() -> Heard:
        heard = Heard()
        scope = house.scope("POST", "/v1/messages", headers={"authorization": f"Bearer {reader}"})
        await house.guard(scope, receive, heard.send)
        return heard

    heard = run(story())
    assert (heard.status, heard.json["code"]) == (403, "UNAUTHORIZED")
    assert [(event.event, event.status) for event in house.audit.events][1:] == [("auth.refused", 403)]


def test_a_client_that_goes_away_half_way_is_not_answered(house: House) -> None:
    parts: list[Message] = [
        {"type": "http.request", "body": b"x", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return parts.pop(0)

    heard = Heard()
    asyncio.run(house.guard(house.scope("POST", "/v1/messages"), receive, heard.send))
    assert heard.status == 0
    assert house.guard._bodies.taken == 0


# -- the audit


def test_a_write_is_audited_with_who_what_and_from_where(house: House) -> None:
    run(
        house.ask(
            "POST",
            "/v1/messages?x=y",
            headers={
                "user-agent": "curl/8",
                "referer": "http://127.0.0.1:7717/page?q=1",
                "origin": "http://127.0.0.1:7717",
                "x-forwarded-for": "6.6.6.6",
            },
        )
    )
    [event] = house.audit.events
    assert event.fields() == {
        "event": "web.write",
        "at": 7,
        "token": house.token.id,
        "label": "tester",
        "agent": "token tester",
        "method": "POST",
        "route": "/the/{route}",
        "path": "/v1/messages",
        "status": 202,
        "remote_addr": "127.0.0.1",
        "user_agent": "curl/8",
        "x_forwarded_for": "6.6.6.6",
        "origin": "http://127.0.0.1:7717",
        "referer": "http://127.0.0.1:7717/page",
    }


def test_a_read_is_not_audited(house: House) -> None:
    run(house.ask())
    assert house.audit.events == []


def test_a_write_that_failed_is_audited_too(tmp_path: Path) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    house = House(tmp_path, broken)
    run(house.ask("POST", "/v1/messages"))
    assert [(event.event, event.status) for event in house.audit.events] == [("web.write", 0)]


def test_a_refused_credential_is_audited_by_its_id_and_not_by_its_text(house: House) -> None:
    house.file.revoke(house.token.id)
    house.served.tokens = Tokens(house.file.folder)
    heard = run(house.ask())
    assert heard.status == 401
    assert heard.headers["www-authenticate"].startswith("Bearer")
    [event] = house.audit.events
    assert (event.event, event.status) == ("auth.refused", 401)
    assert house.token.id in event.detail
    assert house.text not in str(event.fields())


def test_a_token_made_or_revoked_meanwhile_is_audited(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "LOOK_SECONDS", 0.0)
    run(house.ask())
    other, _ = house.file.create(["read"])
    run(house.ask())
    house.file.revoke(other.id)
    run(house.ask())
    assert [(event.event, event.token) for event in house.audit.events] == [
        ("token.created", other.id),
        ("token.revoked", other.id),
    ]


def test_a_flood_of_refusals_is_counted_and_does_not_fill_the_log(house: House) -> None:
    async def story() -> Heard:
        for _ in range(500):
            await house.ask(headers={"authorization": "Bearer x"})
        return await house.ask("POST", "/v1/messages")

    run(story())
    refused = [event for event in house.audit.events if event.event == "auth.refused"]
    assert 1 <= len(refused) < 200
    assert house.audit.events[-1].event == "web.write"


def test_a_forwarded_address_is_believed_from_a_configured_proxy_alone(tmp_path: Path) -> None:
    house = House(tmp_path, proxies=("10.0.0.1",), allow_hosts=("mesh.example:443",))
    forwarded = {"x-forwarded-for": "6.6.6.6", "x-forwarded-proto": "https", "host": "mesh.example"}
    assert run(house.ask("POST", "/v1/messages", peer="10.0.0.1", headers=forwarded)).status == 202
    assert run(house.ask("POST", "/v1/messages", peer="10.0.0.2", headers=forwarded)).status == 421
    assert [event.remote_addr for event in house.audit.events] == ["6.6.6.6", "10.0.0.2"]


# -- writes by GET

COMPAT = "/v1/compat/send?to=coder&from=planner&content=hi&type=message"


def test_a_write_by_get_is_refused_unless_it_is_switched_on(house: House) -> None:
    heard = run(house.ask("GET", COMPAT))
    assert (heard.status, heard.headers["allow"]) == (405, "POST")
    assert house.served.counts.write_get_compat == 0


def test_switched_on_it_becomes_a_post_that_is_deprecated_audited_and_counted(tmp_path: Path) -> None:
    house = House(tmp_path, get_compat=True)
    heard = run(house.ask("GET", COMPAT))
    assert heard.status == 202
    assert heard.json["method"] == "POST"
    assert heard.json["path"] == "/v1/messages"
    assert msgspec.json.decode(heard.json["body"]) == {
        "to": "coder",
        "from": "planner",
        "content": "hi",
        "type": "message",
    }
    assert heard.headers["deprecation"].startswith("@")
    assert 'rel="successor-version"' in heard.headers["link"]
    [event] = house.audit.events
    assert (event.event, event.method, event.path) == ("web.write.get_compat", "GET", "/v1/compat/send")
    assert house.served.counts.write_get_compat == 1


def test_a_publish_by_get_goes_to_its_topic(tmp_path: Path) -> None:
    heard = run(House(tmp_path, get_compat=True).ask("GET", "/v1/compat/publish?topic=a.b&content=1&from=x"))
    assert heard.json["path"] == "/v1/topics/a.b/messages"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (COMPAT, {"cookie": "session=1"}, 403),
        (COMPAT, {"origin": "https://evil.example"}, 403),
        (COMPAT, {"authorization": None}, 401),
        ("/v1/compat/purge?all=true", {}, 405),
        ("/v1/compat/send?to=a&to=b&content=x", {}, 400),
        ("/v1/compat/send?to=a&content=x&scope=admin", {}, 400),
        ("/v1/compat/send?to=a&content=%ff", {}, 400),
        ("/v1/compat/publish?content=x", {}, 400),
    ],
)
def test_also_switched_on_a_write_by_get_has_its_limits(
    tmp_path: Path, path: str, headers: dict[str, str | None], status: int
) -> None:
    house = House(tmp_path, get_compat=True)
    assert run(house.ask("GET", path, headers=headers)).status == status
    assert house.served.counts.write_get_compat == 0


def test_writes_by_get_are_limited_as_others_are(tmp_path: Path) -> None:
    house = House(tmp_path, get_compat=True, write_rate=1.0, write_burst=1.0)

    async def story() -> Heard:
        await house.ask("GET", COMPAT)
        return await house.ask("GET", COMPAT)

    heard = run(story())
    assert (heard.status, heard.headers["retry-after"]) == (429, "1")
    assert 0 < msgspec.json.decode(heard.raw)["retryAfterMs"] <= 1000
    assert house.served.counts.write_rate_limited == 1


# -- WebSockets


class Wire:
    """A WebSocket as the server underneath would be."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.incoming.put_nowait({"type": "websocket.connect"})
        self.sent: list[Message] = []
        self.closed = asyncio.Event()

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "websocket.close":
            self.incoming.put_nowait({"type": "websocket.disconnect", "code": message["code"]})
            self.closed.set()


async def listening(scope: Any, receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    trail_of(scope).write("ws.send", 200, acted={principal_of(scope).token_id})
    while (await receive())["type"] != "websocket.disconnect":
        await send({"type": "websocket.send", "text": "heard"})
    await send({"type": "websocket.send", "text": "after its end"})


def handshake(house: House, **headers: str | None) -> dict[str, Any]:
    scope = house.scope(headers=headers)
    del scope["method"]
    return scope | {"type": "websocket", "scheme": "ws", "path": "/v1/ws", "raw_path": b"/v1/ws"}


def test_a_websocket_is_audited_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    house = House(tmp_path, listening)

    async def story() -> Wire:
        wire = Wire()
        wire.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await house.guard(handshake(house), wire.incoming.get, wire.send)
        return wire

    asyncio.run(story())
    assert [event.event for event in house.audit.events] == ["ws.opened", "ws.send", "ws.closed"]
    assert {event.token for event in house.audit.events} == {house.token.id}


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"authorization": None}, 401), ({"origin": "null"}, 403), ({"host": "evil.example"}, 421)],
)
def test_a_websocket_is_refused_before_it_is_accepted(
    tmp_path: Path, headers: dict[str, str | None], status: int
) -> None:
    house = House(tmp_path, listening)

    async def story() -> Wire:
        wire = Wire()
        await house.guard(handshake(house, **headers), wire.incoming.get, wire.send)
        return wire

    wire = asyncio.run(story())
    assert wire.sent[0]["type"] == "websocket.http.response.start"
    assert wire.sent[0]["status"] == status


def test_a_revoked_token_ends_its_open_websockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(sockets_module, "LOOK_SECONDS", 0.01)
    house = House(tmp_path, listening)

    async def story() -> Wire:
        wire = Wire()
        serving = asyncio.create_task(house.guard(handshake(house), wire.incoming.get, wire.send))
        await asyncio.sleep(0.05)
        assert not wire.closed.is_set()
        house.file.revoke(house.token.id)
        async with asyncio.timeout(30):
            await wire.closed.wait()
            await serving
        return wire

    wire = asyncio.run(story())
    assert wire.sent[-1] == {"type": "websocket.close", "code": 4401, "reason": "the token has ended"}
    assert len(house.guard._sockets) == 0


def test_a_revocation_is_looked_for_within_a_second() -> None:
    assert sockets_module.LOOK_SECONDS + tokens_module.LOOK_SECONDS < 1.0


def test_frames_beyond_the_rate_wait_and_are_not_lost(tmp_path: Path) -> None:
    house = House(tmp_path, listening, write_rate=200.0, write_burst=1.0)

    async def story() -> Wire:
        wire = Wire()
        for _ in range(5):
            wire.incoming.put_nowait({"type": "websocket.receive", "text": "x"})
        wire.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await house.guard(handshake(house), wire.incoming.get, wire.send)
        return wire

    wire = asyncio.run(story())
    assert [message.get("text") for message in wire.sent].count("heard") == 5
    assert house.served.counts.write_rate_limited >= 4


def test_a_message_is_charged_by_its_bytes(tmp_path: Path) -> None:
    house = House(tmp_path, listening, write_rate=200.0, write_burst=1.0)

    async def story() -> float:
        wire = Wire()
        wire.incoming.put_nowait({"type": "websocket.receive", "bytes": b"x" * 40 * 16_384})
        wire.incoming.put_nowait({"type": "websocket.receive", "bytes": b"x"})
        wire.incoming.put_nowait({"type": "websocket.disconnect", "code": 1000})
        began = asyncio.get_running_loop().time()
        await house.guard(handshake(house), wire.incoming.get, wire.send)
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(story()) >= 40 / 200.0


def test_a_body_is_charged_by_its_bytes_with_a_length_and_without(tmp_path: Path) -> None:
    house = House(tmp_path, body_bytes_max=10_000_000, write_rate=1.0, write_burst=100.0)

    async def story(headers: dict[str, str | None]) -> Heard:
        body = [b"x" * 1_000_000] * 2
        assert (await house.ask("POST", "/v1/messages", body=body, headers=headers)).status == 202
        return await house.ask("POST", "/v1/messages", body=[b""])

    assert int(run(story({"content-length": "2000000"})).headers["retry-after"]) >= 20
    house = House(tmp_path, body_bytes_max=10_000_000, write_rate=1.0, write_burst=100.0)
    assert int(run(story({})).headers["retry-after"]) >= 20


def test_a_low_rate_lets_few_through_at_once(tmp_path: Path) -> None:
    house = House(tmp_path, write_rate=5.0)

    async def story() -> list[int]:
        return [(await house.ask("POST", "/v1/messages", body=[b""])).status for _ in range(40)]

    statuses = asyncio.run(story())
    assert statuses.count(202) in (10, 11)
    assert statuses.count(429) >= 29
