"""Attacks by what is begun and never ended: messages, bodies, heads of requests."""

from __future__ import annotations

from collections.abc import Callable

from tests.attacks.sockets import Connection, frame_head, heard_of
from tests.attacks.target import Attacking, Impossible, Target

MESSAGES = 100
BODIES = 16
HEADS = 4_200
BYTES = 16_777_215
"""One below the largest body and the largest message that a node takes."""
HEADS_AT_ONCE = 50
PAUSE_S = 0.02
"""2,500 new connections a second at most: all of them stand within two seconds."""
DESCRIPTORS_SPARE = 100
PATIENCE_S = 0.25
"""A connection that the node does not read for so long is held as it is, and the next one begun."""


def messages(target: Target) -> Attacking:
    """100 WebSocket messages of 16 MB, each without its last fragment or without its last byte."""
    body = bytes(BYTES)

    def begin(number: int) -> Connection:
        ws = target.websocket(hello=number % 2 == 0)
        fragment = number % 4 < 2
        return _sent(ws, frame_head(BYTES if fragment else BYTES + 1, last=not fragment), body)

    return _held(target, MESSAGES, begin)


def bodies(target: Target) -> Attacking:
    """16 requests whose bodies lack the last byte."""
    body = bytes(BYTES)

    def begin(number: int) -> Connection:
        http = target.http()
        return _sent(http, http.head("POST", "/v1/messages", BYTES + 1), body)

    return _held(target, BODIES, begin)


def heads(target: Target) -> Attacking:
    """4,200 connections that begin a request without a token, and never end its head."""
    _allow_descriptors(HEADS + DESCRIPTORS_SPARE)

    def begin(number: int) -> Connection:
        return _sent(target.connection(), b"GET /v1/node HTTP/1.1\r\nHost: ", b"")

    return _held(target, HEADS, begin, at_once=HEADS_AT_ONCE)


def _held(target: Target, most: int, begin: Callable[[int], Connection], at_once: int = 1) -> Attacking:
    """Hold so many connections; begin another for each that the node ends."""
    held: list[Connection] = []
    yield
    try:
        while True:
            held = _alive(target, held)
            for _ in range(min(at_once, most - len(held))):
                try:
                    held.append(begin(target.tally.tried))
                    target.tally.done += 1
                except OSError:
                    target.tally.cut += 1
            yield
            if at_once > 1 or len(held) == most:
                yield from target.pause(PAUSE_S)
    finally:
        for each in held:
            each.close()


def _sent(connection: Connection, head: bytes, body: bytes) -> Connection:
    try:
        connection.send(head)
        connection.send_patiently(body, PATIENCE_S)
    except OSError:
        connection.close()
        raise
    return connection


def _alive(target: Target, held: list[Connection]) -> list[Connection]:
    """Those that the node still holds."""
    heard = heard_of(held)
    alive = []
    for each in held:
        if each in heard and not each.is_open():
            each.close()
            target.tally.cut += 1
        else:
            alive.append(each)
    return alive


def _allow_descriptors(count: int) -> None:
    import resource  # not there on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        raise Impossible(f"{count} descriptors are needed, and {hard} are allowed")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
