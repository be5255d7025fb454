"""A whole node behind a socket, with a clock of the test's: the protocol's flows as transcripts.

Every line that is printed comes from an answer that crossed the socket: HTTP, and a WebSocket for `goodbye`.

A transcript is a text of blocks. Each is a command, `----`, and what it must print:

    send {"from": "lead", "to": "coder", "content": 1}
    ----
    accepted m1

Commands: `advance <seconds>`, `register <agent> [role=…] [protocol=…] [settles=true]`, `heartbeat <agent>`,
`goodbye <agent>`, `drain <agent>`, `state <agent>…`, `send <json>`, `receive <agent>`, `ack <agent>`,
`nack <agent> [code=…] [reason=…]`, `wait <agent>` (advance until something is delivered), `dead`,
`show <task>`. An agent settles what it received last. Tasks are called t1, t2, … and messages of steps s1,
s2, …, in the order in which they are first seen. Lines that begin with `#` are for the reader.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from relaymesh.kernel.address import name_of
from relaymesh.testing import ManualClock
from tests.client.raw import Raw
from tests.client.serving import ServerThread

NO_JITTER = {"settings": {"backoffJitter": 0}}


class Refused(Exception):
    """The node answered with a problem."""


class Mailroom:
    """Takes commands, answers lines."""

    def __init__(self, path: Path) -> None:
        self._clock = ManualClock()
        self._server = ServerThread(path, clock=self._clock)
        self._token = self._server.token()
        headers = {"authorization": f"Bearer {self._token}"}
        self._http = httpx.Client(base_url=self._server.url, headers=headers, timeout=60)
        self._held: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}
        """Ids that the mesh made, and how they are called here."""
        self._ids = (f"m{n}" for n in range(1, 1_000_000))

    def close(self) -> None:
        self._http.close()
        self._server.stop()

    def run(self, line: str) -> list[str]:
        for id, name in self._names.items():
            line = line.replace(f'"{name}"', f'"{id}"').replace(f"show {name}", f"show {id}")
        verb, _, rest = line.partition(" ")
        try:
            lines = list(getattr(self, f"_{verb}")(rest))
        except Refused as refused:
            lines = [str(refused)]
        return [self._named(each) for each in lines]

    def _named(self, line: str) -> str:
        for id, name in self._names.items():
            line = line.replace(id, name)
        return line

    def _name(self, id: str, letter: str) -> None:
        known = [name for name in self._names.values() if name.startswith(letter)]
        self._names.setdefault(id, f"{letter}{len(known) + 1}")

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        said = answer.json()
        if answer.is_success:
            return said
        raise Refused(f"{said['code']}: {said['detail']}")

    # -- time and presence

    def _advance(self, rest: str) -> Iterator[str]:
        self._clock.advance(float(rest))
        self._ask("POST", "/v1/due/deliver")  # it happens by itself within a moment: the flow need not wait
        yield from ()

    def _register(self, rest: str) -> Iterator[str]:
        name, options = _split(rest)
        body: dict[str, Any] = {"name": name, **({"role": options["role"]} if "role" in options else {})}
        if "protocol" in options:
            body["protocolVersion"] = options["protocol"]
        if "settles" in options:
            body["settles"] = options["settles"] == "true"
        ack = self._ask("POST", "/v1/agents", body)
        self._ask("PUT", f"/v1/mailboxes/{name}", NO_JITTER)
        yield (
            f"{ack['type']} protocol={ack['protocolVersion']} role={ack['role'] or 'none'}"
            f" heartbeatInterval={ack['heartbeatIntervalMs']} heartbeatTimeout={ack['heartbeatTimeoutMs']}"
        )

    def _heartbeat(self, rest: str) -> Iterator[str]:
        yield self._ask("POST", f"/v1/agents/{rest}/heartbeat")["type"]

    def _goodbye(self, rest: str) -> Iterator[str]:
        with Raw(self._server, self._token, hello={"agent": rest}) as connection:
            connection.tell(op="goodbye")
            yield f"closed {connection.closed()[0]}"

    def _drain(self, rest: str) -> Iterator[str]:
        yield self._ask("POST", f"/v1/agents/{rest}/drain")["state"]

    def _state(self, rest: str) -> Iterator[str]:
        for name in rest.split():
            try:
                yield f"{name} {self._ask('GET', f'/v1/agents/{name}')['state']}"
            except Refused as refused:
                yield str(refused)

    # -- messages

    def _send(self, rest: str) -> Iterator[str]:
        message = json.loads(rest)
        message.setdefault("id", next(self._ids))
        receipt = self._ask("POST", "/v1/messages", message)
        line = f"{'duplicate' if receipt['duplicate'] else 'accepted'} {receipt['messageId']}"
        if "task" in receipt:
            self._name(receipt["task"], "t")
            line = " ".join([line, receipt["task"], *([receipt["status"]] if "status" in receipt else [])])
        yield line
        yield from receipt.get("notes", ())

    def _receive(self, rest: str) -> Iterator[str]:
        deliveries = self._ask("POST", f"/v1/mailboxes/{rest}/receive", {"max": 10})["deliveries"]
        self._held[rest] = [each["token"] for each in deliveries]
        for each in deliveries:
            if name_of(each["message"]["from"]) == "relaymesh" and each["message"]["type"] == "task_assign":
                self._name(each["message"]["id"], "s")
            yield _shown(each)
        if not deliveries:
            yield "nothing"

    def _wait(self, rest: str) -> Iterator[str]:
        """Advance until something is delivered, and look a millisecond before each second too."""
        waited = 0
        while waited < 3_600_000:
            lines = list(self._receive(rest))
            if lines != ["nothing"]:
                yield f"after {waited / 1000:.3f} s"
                yield from lines
                return
            step = 999 if waited % 1_000 == 0 else 1
            self._clock.advance(step / 1000)
            waited += step
        yield "nothing within an hour"

    def _ack(self, rest: str) -> Iterator[str]:
        self._ask("POST", "/v1/settle", {"acks": self._held.pop(rest)})
        yield from ()

    def _nack(self, rest: str) -> Iterator[str]:
        name, options = _split(rest)
        nacks = [{"token": token, **options} for token in self._held.pop(name)]
        for result in self._ask("POST", "/v1/settle", {"nacks": nacks})["results"]:
            yield result["outcome"]

    def _show(self, rest: str) -> Iterator[str]:
        task = self._ask("GET", f"/v1/tasks/{rest}")
        yield f"{task['task']} {task['status']}" + (
            f" {json.dumps(task['result'])}" if "result" in task else ""
        )
        for step in task["steps"]:
            words = [step["name"], step["status"], f"attempt {step.get('attempt', 0)}"]
            words += [step[name] for name in ("progress", "code", "reason") if name in step]
            yield "  " + " ".join(words)

    def _dead(self, _: str) -> Iterator[str]:
        for letter in self._ask("GET", "/v1/dead-letters")["deadLetters"]:
            where, attempts = name_of(letter["receiver"]), letter["attempts"]
            yield f"{letter['messageId']} in {where}: {letter['reason']}, {attempts} attempts"


def _split(rest: str) -> tuple[str, dict[str, str]]:
    name, *options = rest.split()
    pairs = (option.partition("=") for option in options)
    return name, {key: value.replace("_", " ") if key == "reason" else value for key, _, value in pairs}


def _shown(got: dict[str, Any]) -> str:
    """One line: what it is, its way, its attempt, and its content."""
    delivery = {**got["message"], "attempt": got["attempt"]}
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
