"""Requests of commands to the supervisor: an order file in a folder that only its owner may write, and an
answer file.

    <id>.order   {"do": "restart", "agents": ["coder"]}
    <id>.answer  {"done": ["coder"], "problem": ""}

Files have two advantages over a socket: no limit on the length of the path, and no server that must be
protected. A user who may write here could also end the processes.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from pathlib import Path

import msgspec

from relaymesh.modes import replace_file

__all__ = ["Answer", "Order", "Orders", "ask"]

LOOK_EVERY_S = 0.05


class Order(msgspec.Struct, frozen=True):
    """`agents`: empty means all of them."""

    do: str
    agents: tuple[str, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    done: tuple[str, ...] = ()
    problem: str = ""


class Orders:
    """The supervisor's side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def forget_answers(self) -> None:
        """Answers for which no command waits any more."""
        for path in self._folder.glob("*.answer"):
            path.unlink(missing_ok=True)

    def next(self) -> tuple[str, Order] | None:
        """The next order and its id. Each order is taken once; an order that cannot be read is removed."""
        for path in self._folder.glob("*.order"):
            try:
                order = msgspec.json.decode(path.read_bytes(), type=Order)
            except (OSError, msgspec.MsgspecError):
                continue
            finally:
                path.unlink(missing_ok=True)
            return path.stem, order
        return None

    def answer(self, id: str, answer: Answer) -> None:
        with contextlib.suppress(OSError):  # a full disk: the command's patience ends
            replace_file(self._folder / f"{id}.answer", msgspec.json.encode(answer))


def ask(folder: Path, order: Order, within_s: float) -> Answer | None:
    """The command's side: write an order and wait for its answer. None: no answer came in time."""
    id = secrets.token_hex(8)
    asked, answered = folder / f"{id}.order", folder / f"{id}.answer"
    replace_file(asked, msgspec.json.encode(order))
    until = time.monotonic() + within_s
    try:
        while time.monotonic() < until:
            try:
                return msgspec.json.decode(answered.read_bytes(), type=Answer)
            except FileNotFoundError:
                time.sleep(LOOK_EVERY_S)
        return None
    finally:
        asked.unlink(missing_ok=True)
        answered.unlink(missing_ok=True)
