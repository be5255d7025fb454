"""Sends: from files to the mesh.

A send is complete when its meta file has its name. The gateway moves the send into a folder of its own, so
that no other process changes it. It is then sent under the id that its name gives it, answered with a receipt
file, and only then removed. A gateway that dies anywhere in between repeats this, and the mesh knows the id.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from relaymesh.errors import (
    DeadLettersFull,
    InvalidEnvelope,
    MailboxFull,
    MeshError,
    PayloadTooLarge,
    Refused,
    SenderError,
)
from relaymesh.gateways.filebus.dead import bury, pretty, reason_of
from relaymesh.gateways.filebus.folder import Folder
from relaymesh.gateways.filebus.letter import META_BYTES_MAX, Letter, letter_of, parse_meta
from relaymesh.gateways.filebus.names import (
    META,
    PAYLOAD,
    PAYLOAD_BYTES,
    REASON,
    RECEIPT,
    is_send,
    stand_in,
    stem_of,
)
from relaymesh.gateways.filebus.notices import Notices
from relaymesh.gateways.filebus.settings import BusSettings
from relaymesh.gateways.filebus.tree import Tree
from relaymesh.kernel.commands import Publish, Send
from relaymesh.kernel.step import Receipt
from relaymesh.sdk.session import Session
from relaymesh.wire.envelope import iso

BATCH_MESSAGES = 64
BATCH_BYTES = 1 << 20
REFUSED_WAIT_MS = 1000
"""How long a full mailbox is left alone before the sends that wait for it are tried again."""


class Outbox:
    """The sends of one bus. `agents` are its senders; the first is meant where a meta names none."""

    def __init__(
        self,
        tree: Tree,
        session: Session,
        settings: BusSettings,
        agents: tuple[str, ...],
        notices: Notices,
        wall: Callable[[], float],
    ) -> None:
        self._tree = tree
        self._session = session
        self._settings = settings
        self._agents = agents
        self._notices = notices
        self._wall = wall
        self._limit = min(settings.payload_max_bytes, session.payload_bytes_max)
        self._refused: dict[str, int] = {}
        """Targets that could not take more: mesh time from when they are tried again."""
        found = [stem_of(name, META) for name in tree.private.files(anew=True)]
        self._taken: dict[str, str | None] = {stem: None for stem in found if stem is not None}
        """Stems in the gateway's own folder, in order, and where they go, once that is known."""
        self._finish_burials()

    def _finish_burials(self) -> None:
        """A gateway that died while it buried a send left the payload behind."""
        tree = self._tree
        for folder in (tree.private, tree.payload):
            for name in folder.files(anew=True):
                stem = stem_of(name, PAYLOAD) or stem_of(name, PAYLOAD_BYTES)
                if stem is None or not is_send(stem) or stem in self._taken or tree.meta.stat(stem + META):
                    continue
                if tree.dead.stat(stem + REASON) and tree.dead.stat(stem + META):
                    folder.move(name, tree.dead)

    def turn(self) -> bool:
        """Take what is complete, and send it. Returns whether anything happened."""
        taken = self._take_all()
        return self._send_all() or taken

    # -- taking

    def _take_all(self) -> bool:
        tree = self._tree
        names = [name for name in tree.meta.files() if stem_of(name, META) is not None]
        found = []
        for name in names:
            seen = tree.meta.stat(name)
            if seen is not None:
                found.append((seen.st_mtime_ns, name, seen))
        taken = [self._take(name, seen) for _, name, seen in sorted(found)]
        refused = [self._refuse(name) for name in tree.meta.others() if stem_of(name, META) is not None]
        return any(taken) or any(refused)

    def _refuse(self, name: str) -> bool:
        """What has the name of a meta file and is none."""
        try:
            self._tree.meta.read(name, 0, self._tree.owners)
        except MeshError as error:
            return self._bury(name, self._tree.meta, error)
        except OSError as error:
            self._notices.say(f"meta/{name}", f"cannot be dealt with: {error}")
        return False

    def _take(self, name: str, seen: os.stat_result) -> bool:
        stem = name[: -len(META)]
        tree = self._tree
        try:
            if not is_send(stem):
                raise InvalidEnvelope(
                    f"{name[:80]!r} is no name for a message",
                    hint="use up to 128 of A-Z a-z 0-9 _ . + @ = -, the first a letter, digit or _",
                )
            if stem in self._taken or not self._is_complete(stem, seen):
                return False
            if not tree.meta.move(name, tree.private):
                return False
            self._taken[stem] = None
        except SenderError as error:
            return self._bury(name, tree.meta, error)
        except OSError as error:
            self._notices.say(f"meta/{name}", f"cannot be taken: {error}")
            return False
        return True

    def _is_complete(self, stem: str, meta: os.stat_result) -> bool:
        """Whether its writer has finished, as far as can be seen. Raises if it can never be sent."""
        read = self._tree.meta.read(stem + META, META_BYTES_MAX, self._tree.owners)
        if read is None:
            return False
        try:
            parse_meta(read[0])
        except InvalidEnvelope:
            if self._is_young(read[1]):
                return False
            raise
        found = self._payload(stem)
        if found is None:
            if self._wall() - meta.st_mtime < self._settings.payload_wait_s:
                return False
            raise InvalidEnvelope(
                f"payload/{stem}{PAYLOAD} is missing", hint="write the payload first, then the meta file"
            )
        _, name, seen = found
        if seen.st_size > self._limit:
            raise PayloadTooLarge(f"payload/{name} has {seen.st_size} bytes; the limit is {self._limit}")
        return seen.st_mtime_ns <= meta.st_mtime_ns or not self._is_young(seen)

    def _is_young(self, seen: os.stat_result) -> bool:
        return self._wall() - seen.st_mtime < self._settings.half_written_s

    def _payload(self, stem: str) -> tuple[Folder, str, os.stat_result] | None:
        """Where the payload lies: still in `payload/`, or already taken."""
        for folder in (self._tree.private, self._tree.payload):
            for ending in (PAYLOAD, PAYLOAD_BYTES):
                seen = folder.stat(stem + ending)
                if seen is not None:
                    return folder, stem + ending, seen
        return None

    # -- sending

    def _send_all(self) -> bool:
        now = self._session.now()
        self._refused = {target: until for target, until in self._refused.items() if until > now}
        happened = False
        batch: list[Letter] = []
        for stem, target in list(self._taken.items()):
            if target in self._refused:
                continue
            letter = self._read(stem)
            if letter is None:
                happened = True
                continue
            self._taken[stem] = letter.target
            batch.append(letter)
            if len(batch) >= BATCH_MESSAGES or sum(each.envelope.size for each in batch) >= BATCH_BYTES:
                happened = self._send(batch) or happened
                batch = []
        return (bool(batch) and self._send(batch)) or happened

    def _read(self, stem: str) -> Letter | None:
        """The message of a send that was taken; None when it is dead now."""
        tree = self._tree
        try:
            meta = tree.private.read(stem + META, META_BYTES_MAX, tree.owners)
            found = self._payload(stem)
            if meta is None or found is None:
                raise InvalidEnvelope(f"payload/{stem}{PAYLOAD} vanished before it was sent")
            folder, name, _ = found
            if folder is tree.payload:
                folder.move(name, tree.private)
            payload = tree.private.read(name, self._limit, tree.owners)
            if payload is None:
                raise InvalidEnvelope(f"payload/{name} vanished before it was sent")
            raw = name.endswith(PAYLOAD_BYTES)
            return letter_of(stem, parse_meta(meta[0]), payload[0], raw=raw, agents=self._agents)
        except SenderError as error:
            self._bury(stem + META, tree.private, error)
            return None

    def _send(self, batch: list[Letter]) -> bool:
        """All of them in one call if the mesh takes them so, else one by one."""
        plain = [letter for letter in batch if not letter.is_topic and letter.target not in self._refused]
        happened = False
        if len(plain) > 1:
            groups: dict[str, list[Letter]] = {}
            for letter in plain:
                groups.setdefault(letter.target, []).append(letter)
            try:
                receipts = self._session.execute(
                    Send([(to, [each.envelope for each in letters]) for to, letters in groups.items()])
                )
            except (SenderError, Refused):
                pass  # one of them is to blame: found out below
            else:
                ordered = [letter for letters in groups.values() for letter in letters]
                for letter, receipt in zip(ordered, receipts, strict=True):
                    self._receipt(letter, receipt)
                batch = [letter for letter in batch if letter.is_topic]
                happened = True
        for letter in batch:
            happened = self._send_one(letter) or happened
        return happened

    def _send_one(self, letter: Letter) -> bool:
        if letter.target in self._refused:
            return False  # it must not overtake the one that was refused
        try:
            envelopes = [letter.envelope]
            if not letter.is_topic:
                [receipt] = self._session.execute(Send([(letter.target, envelopes)]))
            else:
                [receipt] = self._session.execute(Publish(letter.target, envelopes))
        except SenderError as error:
            return self._bury(letter.stem + META, self._tree.private, error)
        except (MailboxFull, DeadLettersFull) as error:
            self._refused[letter.target] = self._session.now() + REFUSED_WAIT_MS
            self._notices.say(f"meta/{letter.stem}{META}", f"waits: {error.message}")
            return False
        self._receipt(letter, receipt)
        return True

    def _receipt(self, letter: Letter, receipt: Receipt) -> None:
        """Say that it is the mesh's now, and let go of the files."""
        words: dict[str, Any] = {
            "messageId": receipt.id,
            "topic" if letter.is_topic else "to": letter.target,
            "targets": receipt.targets,
            "duplicate": receipt.duplicate,
        }
        if receipt.due:
            words["scheduledDeliveryTime"] = iso(receipt.due)
        if letter.notes:
            words["notes"] = list(letter.notes)
        self._tree.receipt.write(letter.stem + RECEIPT, pretty(words))
        for ending in (PAYLOAD, PAYLOAD_BYTES, META):
            self._tree.private.remove(letter.stem + ending)
        self._taken.pop(letter.stem, None)

    def _bury(self, name: str, folder: Folder, error: MeshError) -> bool:
        """It can never be sent: out of the way, with the reason, where its sender looks for it."""
        given = name[: -len(META)]
        stem = given if is_send(given) else stand_in(name)
        files = {name: (folder, META)}
        found = self._payload(given) if is_send(given) else None
        if found is not None:
            files[found[1]] = (found[0], PAYLOAD if found[1].endswith(PAYLOAD) else PAYLOAD_BYTES)
        try:
            bury(self._tree.dead, stem, reason_of(error, file=name, at=self._wall()), files)
        except OSError as trouble:
            self._notices.say(f"{folder.path.name}/{name}", f"cannot be moved to dead/: {trouble}")
            return False
        self._taken.pop(given, None)
        return True
