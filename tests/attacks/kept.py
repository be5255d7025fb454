"""Attacks on what a node keeps: each leaves bytes with it that belong to no message's content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from itertools import count

import msgspec

from tests.attacks.sockets import WebSocket
from tests.attacks.target import Attacking, Target

STACK_BYTES = 15_000_000
UNKNOWN_BYTES = 9_000_000
LETTER_BYTES = 9_000_000
ID_BYTES = 15_000_000
MAILBOX_BYTES = 225_000_000
PEEKS = 12
PEEK_S = 2.0
"""How long a connection stays when it has asked: the node works on the answers."""

PATIENT_MAILBOX = [100_000, 268_435_456, "fifo", 100, 600_000, 1_000_000, 0, 0, 0.0]
"""`MailboxSettings` by position: long leases, a million retries, no delay before one."""


def unknown_field(target: Target) -> Attacking:
    """Sends whose content is one byte, and whose unknown field is 9 MB."""
    body = _with_unknown_field(target.agent)
    target.open_mailbox()
    with target.http() as http:
        yield
        while True:
            status, answer = http.request("POST", "/v1/messages", body)
            target.tally.count(taken=status < 300, answer=answer)
            yield


def stacks(target: Target) -> Attacking:
    """Nacks with a stack of 15 MB, again and again on one message."""
    stack = _text(STACK_BYTES)
    target.open_mailbox(PATIENT_MAILBOX)
    with target.websocket() as ws:
        ws.ask("send", groups=[[target.address, [[_id("stack"), target.address, b"1"]]]])
        yield
        while True:
            tokens = ws.ask("receive", mailbox=target.address, max=1, waitMs=1_000).get("tokens")
            if tokens:
                answer = ws.ask("settle", nacks=[[tokens[0], "other", "", stack, True, 0]])
                target.tally.count(taken=answer["op"] == "settled", answer=answer)
            else:
                target.tally.refused += 1
            yield


def peeks(target: Target) -> Attacking:
    """Peeks of a mailbox of 225 MB whose answers are never read; then the same on a new connection."""
    _fill(target)
    yield
    while True:
        try:
            with target.websocket() as ws:
                for ref in range(1, PEEKS + 1):
                    arguments = {"mailbox": target.agent, "limit": 10_000}
                    ws.tell({"op": "call", "ref": ref, "name": "peek", "arguments": arguments})
                    target.tally.done += 1
                    yield
                yield from target.pause(PEEK_S)
        except OSError:
            target.tally.cut += 1
            yield


def expectations(target: Target) -> Attacking:
    """`expect` with correlation ids of 15 MB."""
    target.open_mailbox()
    with target.websocket() as ws:
        yield
        for number in count():
            answer = ws.call("expect", mailbox=target.agent, correlationId=f"{number}{_text(ID_BYTES)}")
            target.tally.count(taken=answer["op"] == "result", answer=answer)
            yield


def dead_letters(target: Target) -> Attacking:
    """Messages of 9 MB, each sent to oneself, received, and made a dead letter."""
    content = _content(LETTER_BYTES)
    target.open_mailbox()
    with target.websocket() as ws:
        yield
        while True:
            sent = ws.ask("send", groups=[[target.address, [[_id("letter"), target.address, content]]]])
            target.tally.count(taken=sent["op"] == "receipts", answer=sent)
            if sent["op"] == "receipts":
                _bury(ws, target.address)
            yield


def _bury(ws: WebSocket, address: str) -> None:
    tokens = ws.ask("receive", mailbox=address, max=10, waitMs=1_000).get("tokens") or []
    if tokens:
        ws.ask("settle", nacks=[[token, "other", "", "", False] for token in tokens])


def _fill(target: Target) -> None:
    """Mail for oneself, as much as the node takes; the first time that an attack begins."""
    body = msgspec.json.encode({"to": target.agent, "content": "x" * LETTER_BYTES})
    target.open_mailbox()
    with target.http() as http:
        for _ in range(MAILBOX_BYTES // LETTER_BYTES):
            status, _ = http.request("POST", "/v1/messages", body)
            if status >= 300:
                return


@cache
def _with_unknown_field(to: str) -> bytes:
    return msgspec.json.encode({"to": to, "content": 1, "unknown": _text(UNKNOWN_BYTES)})


@cache
def _text(length: int) -> str:
    return "x" * length


@cache
def _content(length: int) -> bytes:
    return b'"' + b"x" * (length - 2) + b'"'


_numbers: Iterator[int] = count()


def _id(prefix: str) -> str:
    """An id that this process has not used yet; another attacker has another mailbox."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"
