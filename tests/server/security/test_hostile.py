"""Hostile requests against `relaymesh serve`: each is refused, and the server is well after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.server.security import hostile
from tests.server.security.hostile import Hostile
from tests.server.security.serving import Serving, close_code, frame, opened, say, serving

CASES = [
    pytest.param(case, id=f"{kind}: {case.name}") for kind, cases in hostile.ALL.items() for case in cases
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("hostile")) as running:
        with running.client("admin") as client:
            for agent in ("coder", "planner", "team/coder"):
                assert client.put(f"/v1/mailboxes/{agent}", json={}).status_code < 300
        yield running
        still_works(running)


def still_works(server: Serving) -> None:
    """A message goes its whole way: sent, received, acked."""
    with server.client("planner") as planner, server.client("coder") as coder:
        sent = planner.post(
            "/v1/messages", json={"to": "coder", "type": "message", "content": "still there?"}
        )
        assert sent.status_code == 202, sent.text
        got = coder.post("/v1/mailboxes/coder/receive", json={"max": 10, "waitMs": 10_000}).json()
        [delivery] = got["deliveries"]
        assert delivery["message"]["content"] == "still there?"
        assert delivery["message"]["from"] in ("planner", "default/planner")
        settled = coder.post("/v1/settle", json={"acks": [delivery["token"]]})
        assert settled.status_code == 200, settled.text


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_request_is_refused(server: Serving, case: Hostile) -> None:
    heard = say(server, case.data(server))
    assert heard.status in case.refusals, heard.raw[:2_000]
    assert len(heard.statuses) <= 1, "a second answer: something was smuggled"
    assert server.is_well()


def test_there_are_enough_of_them() -> None:
    assert len(CASES) + len(FRAMES) >= 50


# -- frames

FRAMES: dict[str, tuple[Callable[[], list[bytes]], tuple[int, ...]]] = {
    "a giant frame": (lambda: [frame(2, b"x", length=1 << 40)], (1009, 1002)),
    "a frame just beyond the limit": (lambda: [frame(2, b"x", length=hostile.BODY_BYTES_MAX + 1)], (1009,)),
    "a message beyond the limit in fragments": (
        lambda: [frame(2, b"x" * 65_536, fin=False)] + [frame(0, b"x" * 65_536, fin=False)] * 260,
        (1009,),
    ),
    "fragments without number": (
        lambda: [frame(2, b"", fin=False)] + [frame(0, b"", fin=False)] * 5_000,
        (1008,),
    ),
    "a frame that is not masked": (lambda: [frame(2, b"x", masked=False)], (1002,)),
    "a kind of frame that is not there": (lambda: [frame(5, b"x")], (1002,)),
    "reserved bits": (lambda: [frame(2, b"x", rsv=4)], (1002,)),
    "a ping in fragments": (lambda: [frame(9, b"x", fin=False)], (1002,)),
    "a huge ping": (lambda: [frame(9, b"x" * 200)], (1002,)),
    "a continuation of nothing": (lambda: [frame(0, b"x")], (1002,)),
    "a message inside a message": (lambda: [frame(2, b"x", fin=False), frame(2, b"y")], (1002,)),
    "text that is no text": (lambda: [frame(1, b"\xff\xfe")], (1007,)),
    "a close without a reason that is one": (lambda: [frame(8, b"\x00")], (1002,)),
    "no hello": (lambda: [frame(2, b"\xc1\xc1\xc1")], (1002, 1003, 1007, 1008, 4400)),
    "a deep hello": (lambda: [frame(2, b"\x91" * 100_000)], (1002, 1003, 1007, 1008, 4400)),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_hostile_frame_closes_its_connection_with_a_code(server: Serving, name: str) -> None:
    frames, codes = FRAMES[name]
    with opened(server) as connection:
        try:
            for data in frames():
                connection.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it had heard enough, and says so below
        assert close_code(connection) in codes
    assert server.is_well()
