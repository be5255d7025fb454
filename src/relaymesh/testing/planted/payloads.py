"""What is wrong with payload files: when they are written, and when they go."""

# ruff: noqa: ARG001 - a wrong function takes what the right one takes

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaymesh.journal.disk import Disk
from relaymesh.journal.payloads import PayloadNames
from relaymesh.kernel.payload import Reference
from relaymesh.node import payloads
from relaymesh.node.payloads import Payloads
from relaymesh.testing.planted.bug import Original, at, plant
from relaymesh.testing.planted.journal import UnsyncedNames


class Unsynced:
    """A disk, or a file of it, whose syncs do nothing."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def sync(self) -> None:
        pass

    def sync_folder(self, folder: str) -> None:
        pass

    def open(self, name: str, *, create: bool = False, write: bool = True) -> Unsynced:
        return Unsynced(self._inner.open(name, create=create, write=write))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._inner, name)
        return call


@plant(
    at(payloads, "write_payload"),
    broken="a record is written before the payload file that it names is synced",
    like="Git before 2.36: an object's name synced, its bytes not",
)
def payload_unsynced(original: Original, disk: Disk, sha256: str, content: bytes, **how: Any) -> None:
    original(Unsynced(disk), sha256, content, **how)


@plant(
    at(PayloadNames, "read"),
    broken="a payload file is swept while a checkpoint or a segment names it",
    like="Git: gc prunes objects that are still reachable",
)
def payload_swept_while_named(original: Original, names: PayloadNames) -> set[str]:
    return set()


@plant(at(Payloads, "_write"), broken="the name of a payload file is not durable when its record is written")
def payload_name_unsynced(
    original: Original, kept: Payloads, disk: Disk, reference: Reference, content: bytes
) -> None:
    original(kept, UnsyncedNames(disk), reference, content)
