"""Attacks by what is begun and never ended: messages, bodies, heads of requests."""

from __future__ import annotations

import resource
import socket
from collections import deque

from tests.attacks.sockets import Http, WebSocket, frame_head
from tests.attacks.target import Attacking, Impossible, Target

MESSAGES = 100
BODIES = 16
HEADS = 4_200
BYTES = 16_700_000
"""Just below the largest body and the largest message that a node takes."""
DESCRIPTORS_SPARE = 100


def messages(target: Target) -> Attacking:
    """100 WebSocket messages of 16 MB, each without its last fragment or without its last byte."""
    held: deque[WebSocket] = deque()
    body = bytes(BYTES)
    yield
    try:
        while True:
            _leave_out_the_dead(target, held)
            if len(held) < MESSAGES:
                ws = WebSocket(target.port, target.token, hello=len(held) % 2 == 0)
                held.append(ws)
                fragment = len(held) % 2 == 0
                ws.send(frame_head(BYTES if fragment else BYTES + 1, last=not fragment))
                ws.send(body)
                target.tally.done += 1
                target.tally.bytes += BYTES
                yield
            else:
                yield from target.pause(0.1)
    finally:
        _close(held)


def bodies(target: Target) -> Attacking:
    """16 requests whose bodies lack the last byte."""
    held: deque[Http] = deque()
    body = bytes(BYTES)
    yield
    try:
        while True:
            _leave_out_the_dead(target, held)
            if len(held) < BODIES:
                http = Http(target.port)
                held.append(http)
                http.send(http.head("POST", "/v1/messages", target.token, BYTES + 1))
                http.send(body)
                target.tally.done += 1
                target.tally.bytes += BYTES
                yield
            else:
                yield from target.pause(0.1)
    finally:
        _close(held)


def heads(target: Target) -> Attacking:
    """4,200 connections that begin a request without a token, and end its head never."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = HEADS + DESCRIPTORS_SPARE
    if soft < needed:
        if hard < needed:
            raise Impossible(f"{needed} descriptors are needed, and {hard} are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    held: deque[socket.socket] = deque()
    yield
    try:
        while True:
            held.append(_half_open(target))
            if len(held) > HEADS:
                held.popleft().close()
            if target.tally.tried % 50 == 0:
                yield
    finally:
        _close(held)


def _half_open(target: Target) -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", target.port), 5.0)
    try:
        opened.sendall(b"GET /v1/node HTTP/1.1\r\nHost: ")
        target.tally.done += 1
    except OSError:
        target.tally.cut += 1
    return opened


def _leave_out_the_dead(target: Target, held: deque[Http] | deque[WebSocket]) -> None:
    """Forget the connections that the node has ended; others take their place."""
    for each in list(held):
        if not each.is_open():
            each.close()
            held.remove(each)  # type: ignore[arg-type]
            target.tally.cut += 1


def _close(held: deque[Http] | deque[WebSocket] | deque[socket.socket]) -> None:
    for each in held:
        each.close()
