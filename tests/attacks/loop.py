"""Attacks on the event loop: little to send, much to work through before anybody else has a turn."""

from __future__ import annotations

import os
from functools import cache
from itertools import count

import msgspec

from tests.attacks.sockets import PING, framed
from tests.attacks.target import Attacking, Target

PINGS_AT_ONCE = 20_000
BUNDLE_PINGS = 1_000_000
FIELDS = 800_000
BATCH_MESSAGES = 500_000
ROOMY_MAILBOX = [10_000_000]
"""`MailboxSettings` by position: a capacity of ten million messages."""


def pings(target: Target) -> Attacking:
    """WebSocket pings as fast as they go; the pongs are read and thrown away."""
    flood = framed(b"", PING) * PINGS_AT_ONCE
    with target.websocket() as ws:
        yield
        while True:
            ws.flood(flood)
            target.tally.done += PINGS_AT_ONCE
            yield


def bundles(target: Target) -> Attacking:
    """Messages that are bundles of a million `ping` frames; the answers are read and thrown away."""
    message = _bundle()
    with target.websocket() as ws:
        yield
        while True:
            ws.flood(message)
            target.tally.done += 1
            yield


def fields(target: Target) -> Attacking:
    """Sends with 800,000 unknown fields."""
    body = _with_fields(target.agent)
    target.open_mailbox()
    with target.http() as http:
        yield
        while True:
            status, answer = http.request("POST", "/v1/messages", body)
            target.tally.count(taken=status < 300, answer=answer)
            yield


def batches(target: Target) -> Attacking:
    """Binary sends of 500,000 messages each, to a mailbox that has room for them."""
    target.open_mailbox(ROOMY_MAILBOX)
    with target.websocket() as ws:
        batch = _batch(target.agent, 0)
        yield
        for number in count(1):
            answer = ws.ask("send", groups=msgspec.Raw(batch))
            target.tally.count(taken=answer["op"] == "receipts", answer=answer)
            yield
            if answer["op"] == "receipts":
                batch = _batch(target.agent, number)


def metrics(target: Target) -> Attacking:
    """`/metrics` of 10,000 mailboxes in a loop, by a token that may only look."""
    with target.http() as http:
        yield
        while True:
            status, body = http.request("GET", "/metrics")
            target.tally.count(taken=status < 300, answer=body)
            yield


@cache
def _bundle() -> bytes:
    ping = msgspec.msgpack.encode({"op": "ping", "ref": 1})
    return framed(b"\xdd" + BUNDLE_PINGS.to_bytes(4, "big") + ping * BUNDLE_PINGS)


@cache
def _with_fields(to: str) -> bytes:
    unknown = ",".join([f'"f{number}":0' for number in range(FIELDS)])
    return f'{{"to":"{to}","content":1,{unknown}}}'.encode()


def _batch(agent: str, number: int) -> bytes:
    """One group; ids differ from those of every other batch."""
    ids = f"{os.getpid()}.{number}."
    return msgspec.msgpack.encode([[agent, [[f"{ids}{i}", agent, b"1"] for i in range(BATCH_MESSAGES)]]])
