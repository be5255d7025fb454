"""A node without sockets, threads or a clock of its own: the protocol layer over a kernel, for transcripts.

A transcript is a text of blocks. Each is a command, `----`, and what it must print:

    send {"from": "lead", "to": "coder", "content": 1}
    ----
    accepted m1

Commands: `advance <seconds>`, `register <agent> [role=…] [protocol=…]`, `heartbeat <agent>`, `goodbye
<agent>`, `drain <agent>`, `state <agent>…`, `send <json>`, `receive <agent>`, `ack <agent>`, `nack <agent>
[code=…] [reason=…]`, `wait <agent>` (advance until something is delivered), `dead`. An agent settles
what it received last. Lines that begin with `#` are for the reader.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from relaymesh.errors import MeshError
from relaymesh.kernel.address import agent_address, name_of
from relaymesh.kernel.commands import Command, Send
from relaymesh.kernel.entry import Lease
from relaymesh.kernel.kernel import Kernel
from relaymesh.server.reliability import ReliabilityConfig
from relaymesh.server.roster import Roster
from relaymesh.wire.protocol import delivery_json, parse_message
from tests.kernel.driver import Driver


class DriverCore:
    """A kernel driver as the roster's core."""

    def __init__(self, mesh: Driver) -> None:
        self._mesh = mesh

    def execute(self, command: Command) -> Any:
        return self._mesh.do(command).result

    def read(self, look: Callable[[Kernel], Any]) -> Any:
        return look(self._mesh.kernel)


class Mailroom:
    """Takes commands, answers lines."""

    def __init__(self, chance: float = 0.0, config: ReliabilityConfig | None = None) -> None:
        self.mesh = Driver(chance=chance)
        self.roster = Roster(DriverCore(self.mesh), config)
        self.config = self.roster.config
        self._held: dict[str, list[Lease]] = {}
        self._ids = (f"m{n}" for n in range(1, 1_000_000))

    def run(self, line: str) -> list[str]:
        verb, _, rest = line.partition(" ")
        try:
            return list(getattr(self, f"_{verb}")(rest))
        except MeshError as error:
            return [f"{error.code}: {error.message}"]

    # -- time and presence

    def _advance(self, rest: str) -> Iterator[str]:
        self.mesh.advance(round(float(rest) * 1000))
        yield from ()

    def _register(self, rest: str) -> Iterator[str]:
        name, options = _split(rest)
        agent = agent_address(name)
        given: dict[str, Any] = {key: options[key] for key in ("role", "protocol") if key in options}
        known = asyncio.run(self.roster.register(agent, self.mesh.now, **given))
        yield (
            f"handshake.ack protocol={known.protocol} role={self.roster.role_of(agent)}"
            f" heartbeatInterval={self.config.heartbeat_interval}"
            f" heartbeatTimeout={self.config.heartbeat_timeout}"
        )

    def _heartbeat(self, rest: str) -> Iterator[str]:
        self.roster.heartbeat(agent_address(rest), self.mesh.now)
        yield "ack"

    def _goodbye(self, rest: str) -> Iterator[str]:
        self.roster.presence.gone(agent_address(rest), self.mesh.now)
        yield from ()

    def _drain(self, rest: str) -> Iterator[str]:
        asyncio.run(self.roster.drain(agent_address(rest)))
        yield self.roster.state(agent_address(rest), self.mesh.now)

    def _state(self, rest: str) -> Iterator[str]:
        for name in rest.split():
            yield f"{name} {self.roster.state(agent_address(name), self.mesh.now)}"

    # -- messages

    def _send(self, rest: str) -> Iterator[str]:
        incoming = parse_message(rest.encode(), new_id=lambda: next(self._ids), ttl_ms=self.config.ttl_ms)
        envelope, to = incoming.envelope, agent_address(incoming.to or "")
        sender = agent_address(envelope.sender)
        self.roster.check_message(envelope.type, sender, to)
        stamped = type(envelope)(**{**_fields(envelope), "sender": sender})
        (receipt,) = self.mesh.do(Send([(to, [stamped])])).result
        yield f"{'duplicate' if receipt.duplicate else 'accepted'} {receipt.id}"
        yield from incoming.notes

    def _receive(self, rest: str) -> Iterator[str]:
        leases = self.mesh.receive(agent_address(rest), 10)
        self._held[rest] = leases
        for lease in leases:
            yield _shown(json.loads(delivery_json(lease)))
        if not leases:
            yield "nothing"

    def _wait(self, rest: str) -> Iterator[str]:
        began = self.mesh.now
        while self.mesh.now - began < 3_600_000:
            lines = list(self._receive(rest))
            if lines != ["nothing"]:
                yield f"after {(self.mesh.now - began) / 1000:.3f} s"
                yield from lines
                return
            self.mesh.advance(1)
        yield "nothing within an hour"

    def _ack(self, rest: str) -> Iterator[str]:
        self.mesh.ack(*self._held.pop(rest))
        yield from ()

    def _nack(self, rest: str) -> Iterator[str]:
        name, options = _split(rest)
        for lease in self._held.pop(name):
            yield str(self.mesh.nack(lease, **options))

    def _dead(self, _: str) -> Iterator[str]:
        for letter in self.mesh.letters:
            where, attempts = name_of(letter.mailbox), letter.attempts
            yield f"{letter.envelope.id} in {where}: {letter.reason}, {attempts} attempts"


def _fields(envelope: Any) -> dict[str, Any]:
    return {name: getattr(envelope, name) for name in envelope.__struct_fields__}


def _split(rest: str) -> tuple[str, dict[str, str]]:
    name, *options = rest.split()
    pairs = (option.partition("=") for option in options)
    return name, {key: value.replace("_", " ") if key == "reason" else value for key, _, value in pairs}


def _shown(delivery: dict[str, Any]) -> str:
    """One line: what it is, its way, its attempt, and its content."""
    way = f"{name_of(delivery['from'])} -> {name_of(delivery['to'])}"
    line = f"{delivery['type']} {delivery['id']} {way} attempt {delivery['attempt']}"
    correlation = delivery["metadata"].get("correlationId")
    if correlation is not None:
        line += f" correlationId={correlation}"
    return f"{line} {json.dumps(delivery['content'])}"


def blocks(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """(line number, command, expected lines) of a transcript."""
    lines = path.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line or line.startswith("#"):
            at += 1
            continue
        number, expected, at = at + 1, [], at + 1
        if at < len(lines) and lines[at] == "----":
            at += 1
            while at < len(lines) and lines[at]:
                expected.append(lines[at])
                at += 1
        yield number, line, expected
