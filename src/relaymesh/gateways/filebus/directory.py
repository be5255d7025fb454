"""What a bus directory says about itself: whose it is, and what lies in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.gateways.filebus.bus import LOCK
from relaymesh.gateways.filebus.held_files import deliveries
from relaymesh.gateways.filebus.names import LOST, META, REASON, RECEIPT, TIERS, is_day, stem_of
from relaymesh.gateways.filebus.tree import PRIVATE, Tree, make_tree
from relaymesh.kernel.address import agent_address
from relaymesh.node.disk import RealLock

BUS_FILE = "bus.json"
BUS_BYTES_MAX = 65_536


class BusFile(msgspec.Struct, frozen=True):
    """`bus.json`: the agents of the bus, the first of them the sender of what names none."""

    agents: list[str]


def make_bus(path: Path, agents: Sequence[str], group: int | None = None) -> BusFile:
    """Make what is missing of a bus directory, and note its agents. `group`: its members may use it too."""
    words = BusFile([agent_address(name) for name in agents])
    if not words.agents:
        raise InvalidSettings("a file bus needs an agent", hint="name one with --agent NAME")
    make_tree(path, group)
    tree = Tree(path)
    try:
        tree.root.write(BUS_FILE, msgspec.json.encode(words) + b"\n")
    finally:
        tree.close()
    return words


def agents_of(path: Path) -> list[str]:
    """The agents that the directory was made for."""
    tree = Tree(path)
    try:
        read = tree.root.read(BUS_FILE, BUS_BYTES_MAX, tree.owners)
    finally:
        tree.close()
    if read is None:
        raise InvalidSettings(
            f"{path} does not say whose bus it is", hint="name its agents with --agent NAME"
        )
    try:
        return msgspec.json.decode(read[0], type=BusFile).agents
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"{path / BUS_FILE} cannot be read: {error}", hint="write it anew: relaymesh bus init"
        ) from None


def is_served(path: Path) -> bool:
    """Whether a gateway runs on it."""
    try:
        RealLock(path / PRIVATE / LOCK).release()
    except BlockingIOError:
        return True
    return False


def contents_of(path: Path) -> Iterator[dict[str, Any]]:
    """How many files are in which state: rows of `place`, `files`, `meaning`."""
    tree = Tree(path)
    try:
        sends = [name for name in tree.meta.files() if stem_of(name, META)]
        yield _row("meta", len(sends), "sends that were not taken yet")
        taken = [name for name in tree.private.files() if stem_of(name, META)]
        yield _row(PRIVATE, len(taken), "sends that were taken and wait for a receipt")
        receipts = [name for name in tree.receipt.files() if name.endswith(RECEIPT)]
        yield _row("receipt", len(receipts), "sends that the mesh has")
        for tier in TIERS:
            count = len(list(deliveries(tree.tiers[tier].files())))
            yield _row(f"inbox/{tier}", count, "deliveries to claim")
        for worker, folder in sorted(tree.look_for_workers().items()):
            files = folder.files()
            lost = sum(name.endswith(LOST) for name in files)
            words = f"claimed; {lost} lost their lease" if lost else "claimed"
            yield _row(f"processing/{worker}", len(list(deliveries(files))), words)
        yield _row("done", len(list(deliveries(tree.done.files()))), "not acked yet")
        for day in filter(is_day, tree.done.others()):
            folder = tree.done.folder(day)
            yield _row(f"done/{day}", len(list(deliveries(folder.files()))), "acked")
            folder.close()
        reasons = [name for name in tree.dead.files() if name.endswith(REASON)]
        yield _row("dead", len(reasons), "refused: each has a .reason.json")
    finally:
        tree.close()


def _row(place: str, files: int, meaning: str) -> dict[str, Any]:
    return {"place": place, "files": files, "meaning": meaning}
