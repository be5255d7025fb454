"""Payloads of a node: large content goes into files before it enters the core, and comes back as it leaves.

    file(command)    replace what is large in a command by references; the files are durable when it returns
    release(names)   the command was decided: its records, or none, name the files from here on
    get(reference)   the content
    sweep(...)       remove files that nothing names

Called without the core's lock, and never on an event loop. A file that a command has written is held until
the command was decided: a sweep does not remove it. A mesh in memory has no files: all content is inline.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from relaymesh.errors import DirectoryError, DiskFloor, JournalDamaged
from relaymesh.journal import Disk, MirroredDisk
from relaymesh.journal.disk import is_full
from relaymesh.journal.payloads import (
    PayloadNames,
    list_payloads,
    make_payload_folder,
    read_payload,
    write_payload,
)
from relaymesh.kernel.commands import Publish, Redrive, Send, Settle
from relaymesh.kernel.envelope import IN_FILE, Envelope
from relaymesh.kernel.payload import (
    INLINE_BYTES_MAX,
    PAYLOADS,
    Reference,
    payload_path,
    reference_to,
    resolved,
    the_reference,
)
from relaymesh.kernel.tasks.commands import Finish, Move, Submit

__all__ = ["FILING", "Payloads"]

log = logging.getLogger("relaymesh.node")

FILING = (Finish, Redrive, Submit)
"""Commands, other than those that send, that may have large content. For `isinstance`."""
RECENT_BYTES_MAX = 33_554_432
"""How much content stays in memory after it was written or read, because it is usually delivered soon."""
KNOWN_MAX = 4_096
"""How many files are remembered as whole and durable: sending the same content again costs no write and no
sync."""
AGE_NS_MIN = 3_600_000_000_000
"""Younger files are not swept, even if nothing names them."""
TURNS = 16
"""How many different files may be written at once."""


class Payloads:
    """The payload files of one node. Thread-safe. `require_capacity`: see `Intake`."""

    def __init__(
        self,
        disk: Disk | None,
        require_capacity: Callable[[int], None],
        inline_max: int = INLINE_BYTES_MAX,
    ) -> None:
        self._disk = disk
        self._require_capacity = require_capacity
        self.inline_max = sys.maxsize if disk is None else inline_max
        """Content of more bytes goes into a file."""
        self.used = disk is not None and _may_have_files(disk)
        """Whether there may be a reference anywhere. False: nothing that leaves needs a look."""
        self._lock = threading.Lock()
        self._turns = [threading.Lock() for _ in range(TURNS)]
        self._held: dict[str, int] = {}
        """Files of commands that are not decided yet, and how many such commands."""
        self._met: set[str] | None = None
        """While a sweep runs: the files that were put since it began."""
        self._known: OrderedDict[str, None] = OrderedDict()
        """Files that this process found or made durable."""
        self._unsure: set[str] = set()
        """Files whose last write failed: they may be whole here and missing in the mirror."""
        self._folders: set[str] = set()
        """Folders that are durable, with all names that were in them at the start."""
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._recent_bytes = 0
        self._names = None if disk is None else PayloadNames(disk)
        self._one_sweep = threading.Lock()

    # -- the port

    def put(self, content: bytes) -> Reference:
        """Keep content in a file; returns when it is durable, here and in a required mirror.

        The file is held until it is released. Raises `DiskFloor` or `DirectoryError`.
        """
        assert self._disk is not None
        reference = reference_to(content)
        name = reference.sha256
        with self._lock:
            self._held[name] = self._held.get(name, 0) + 1
            if self._met is not None:
                self._met.add(name)
        try:
            with self._turns[int(name[:2], 16) % TURNS]:
                if name not in self._known:
                    self._write(self._disk, reference, content)
                    self._now_known(name)
        except BaseException as error:
            self.release([name])
            if not isinstance(error, OSError):
                raise
            self._unsure.add(name)
            if is_full(error):
                raise DiskFloor(f"no room for content of {len(content)} bytes: {error}") from error
            raise DirectoryError(f"content of {len(content)} bytes cannot be written: {error}") from error
        self.used = True
        self._keep_recent(name, content)
        return reference

    def _write(self, disk: Disk, reference: Reference, content: bytes) -> None:
        name = reference.sha256
        folder = payload_path(name).rpartition("/")[0]
        if folder not in self._folders:
            make_payload_folder(disk, folder)
            disk.sync_folder(folder)  # a process that was killed may have left a name that is not durable
            self._folders.add(folder)
        if name in self._unsure or not _is_there(disk, reference):
            write_payload(disk, name, content, new_folder=False)
            self._unsure.discard(name)

    def _now_known(self, name: str) -> None:
        with self._lock:
            self._known[name] = None
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def get(self, reference: Reference) -> bytes:
        """The content. Raises `JournalDamaged` for a file that is missing or not whole, here and in the
        mirror.
        """
        assert self._disk is not None
        with self._lock:
            content = self._recent.get(reference.sha256)
            if content is not None:
                self._recent.move_to_end(reference.sha256)
                return content
        try:
            content = read_payload(self._disk, reference)
        except JournalDamaged:
            content = self._from_mirror(self._disk, reference)
            if content is None:
                raise
        self._keep_recent(reference.sha256, content)
        return content

    def _from_mirror(self, disk: Disk, reference: Reference) -> bytes | None:
        """The content in the mirror, if it is available and whole; then the damaged file is written again."""
        if not isinstance(disk, MirroredDisk):
            return None
        found: list[bytes] = []

        def look(mirror: Disk) -> None:  # a best-effort mirror runs this later, which is too late here
            with suppress(OSError, JournalDamaged):
                found.append(read_payload(mirror, reference))

        disk.on_mirror(look)
        if not found:
            return None
        try:
            with self._turns[int(reference.sha256[:2], 16) % TURNS]:
                write_payload(disk, reference.sha256, found[0])
            log.warning("%s was damaged and was copied from the mirror", reference.path)
        except OSError as error:
            log.warning("%s is damaged, and cannot be written anew: %s", reference.path, error)
        return found[0]

    def resolve(self, text: bytes) -> bytes:
        """The text with its references replaced by the content."""
        return resolved(text, self.get) if self.used else text

    def _keep_recent(self, name: str, content: bytes) -> None:
        with self._lock:
            if name not in self._recent and len(content) <= RECENT_BYTES_MAX // 2:
                self._recent[name] = content
                self._recent_bytes += len(content)
                while self._recent_bytes > RECENT_BYTES_MAX:
                    self._recent_bytes -= len(self._recent.popitem(last=False)[1])

    # -- commands

    def is_large(self, command: Any) -> bool:
        """Whether `file` has anything to do."""
        most = self.inline_max
        if isinstance(command, Finish):
            return len(command.output) > most
        if isinstance(command, (Send, Settle, Publish)):
            return command.size > most
        if isinstance(command, Submit):
            return len(command.input) > most
        if isinstance(command, Redrive) and command.edited is not None:
            return any(len(each.content) > most for each in command.edited if each is not None)
        return False

    def file(self, command: Any) -> list[str]:
        """Replace large content of a command by references. Returns the files, to be released."""
        held: list[str] = []
        try:
            match command:
                case Send() | Settle():
                    self._require_capacity(command.size)
                    command.groups = [(to, self._filed_all(some, held)) for to, some in command.groups]
                case Publish():
                    self._require_capacity(command.size)
                    command.envelopes = self._filed_all(command.envelopes, held)
                case Redrive():
                    command.edited = [each and self._filed(each, held) for each in command.edited or ()]
                case Finish():
                    command.output = self._shortened(command.output, held)
                case Submit():
                    command.input = self._shortened(command.input, held)
        except BaseException:
            self.release(held)
            raise
        return held

    @contextmanager
    def filed(self, command: Any) -> Iterator[None]:
        """`file` a command that is decided inside."""
        held = self.file(command)
        try:
            yield
        finally:
            self.release(held)

    def file_moves(self, moves: Sequence[Move]) -> tuple[list[Move], list[str]]:
        """The same for the messages of steps. The content of one that was taken back may already be a
        reference."""
        held: list[str] = []
        try:
            return [self._filed_move(move, held) for move in moves], held
        except BaseException:
            self.release(held)
            raise

    def _filed_move(self, move: Move, held: list[str]) -> Move:
        if the_reference(move.content) is not None:
            return move
        return replace(move, content=self._shortened(move.content, held))

    def release(self, names: Iterable[str]) -> None:
        """Release files: their commands were decided, or given up."""
        with self._lock:
            for name in names:
                left = self._held[name] - 1
                if left:
                    self._held[name] = left
                else:
                    del self._held[name]

    def _filed_all(self, envelopes: Sequence[Envelope], held: list[str]) -> Sequence[Envelope]:
        return [self._filed(each, held) for each in envelopes]

    def _filed(self, envelope: Envelope, held: list[str]) -> Envelope:
        if len(envelope.content) <= self.inline_max or envelope.encoding >= IN_FILE:
            return envelope
        content = self._shortened(envelope.content, held)
        return replace(envelope, content=content, encoding=envelope.encoding + IN_FILE)

    def _shortened(self, content: bytes, held: list[str]) -> bytes:
        if len(content) <= self.inline_max:
            return content
        self._require_capacity(len(content))
        reference = self.put(content)
        held.append(reference.sha256)
        return reference.encode()

    # -- sweeping

    def sweep(self, write: Callable[[], None], also: Callable[[], set[str]], wall_ns: int) -> list[str]:
        """Remove files that nothing names and that are older than an hour; returns their names.

        `write`: writes every record that was decided so far. `also`: other texts that name files. No
        checkpoint may be written meanwhile: payload files that only an old checkpoint names would be lost.
        """
        if self._disk is None or self._names is None or not self.used:
            return []
        with self._one_sweep:
            try:
                with self._lock:
                    self._met = set(self._held)
                old = [name for name in list_payloads(self._disk) if self._age_ns(name, wall_ns) > AGE_NS_MIN]
                if not old:
                    return []
                write()
                named = self._names.read() | also()
                removed = [name for name in old if name not in named and self._remove(name)]
                for folder in sorted({payload_path(name).rpartition("/")[0] for name in removed}):
                    self._disk.sync_folder(folder)
                if isinstance(self._disk, MirroredDisk):
                    kept = named.union(list_payloads(self._disk))
                    self._disk.on_mirror(lambda mirror: _remove_others(mirror, kept, wall_ns))
            finally:
                with self._lock:
                    self._met = None
        if removed:
            log.info("removed %d payload files that nothing names", len(removed))
        return removed

    def read_names(self) -> None:
        """Read the parts that no longer change before the sweep, because this may take long."""
        if self._names is not None and self.used:
            with suppress(OSError):  # a segment was dropped meanwhile: the sweep looks again
                self._names.read()

    def _age_ns(self, name: str, wall_ns: int) -> int:
        assert self._disk is not None
        return wall_ns - self._disk.modified_ns(payload_path(name))

    def _remove(self, name: str) -> bool:
        """Remove a file, unless a command has written it since the sweep began."""
        assert self._disk is not None
        with self._turns[int(name[:2], 16) % TURNS]:
            with self._lock:
                if name in (self._met or ()):
                    return False
                self._known.pop(name, None)
                content = self._recent.pop(name, b"")
                self._recent_bytes -= len(content)
            self._disk.remove(payload_path(name))
        return True


def _may_have_files(disk: Disk) -> bool:
    try:
        return disk.exists(PAYLOADS)
    except OSError:
        return True  # assume that there are some: checking answers costs little, and no start must fail here


def _remove_others(mirror: Disk, kept: set[str], wall_ns: int) -> None:
    """Remove old files that only a mirror has, because it was not available when the others were swept."""
    for name in list_payloads(mirror):
        path = payload_path(name)
        if name not in kept and wall_ns - mirror.modified_ns(path) > AGE_NS_MIN:
            mirror.remove(path)


def _is_there(disk: Disk, reference: Reference) -> bool:
    """Whether the file exists and is whole: a damaged one is written again."""
    if not disk.exists(reference.path):
        return False
    try:
        read_payload(disk, reference)
    except JournalDamaged:
        return False
    return True
