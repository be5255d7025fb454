"""Originals: earlier sends under an id, read again to compare content if the bytes differ.

The kernel keeps a digest of each send and recognizes equal bytes by it. Another language may write the same
JSON in other bytes. Only if the bytes differ is the original read: from memory while it is unsettled, else
from the journal, which `archive_days` keeps for longer than the dedup window. A mesh in memory has no
journal: there, other bytes under the id of a settled message are a conflict.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import partial

from relaymesh.errors import DirectoryError, JournalDamaged
from relaymesh.journal import Disk, find_frames
from relaymesh.kernel.commands import Publish, Send, Settle
from relaymesh.kernel.dedup import Differing, topic_target
from relaymesh.kernel.envelope import Encoding, Envelope
from relaymesh.kernel.looks import unsettled_originals
from relaymesh.kernel.records import Accepted, Published
from relaymesh.node.core import Core
from relaymesh.node.payloads import Payloads
from relaymesh.wire.equality import same_json
from relaymesh.wire.payload import whole
from relaymesh.wire.records import read_records

log = logging.getLogger("relaymesh.node")

Sending = Send | Publish | Settle
SENDING = (Send, Publish, Settle)
"""Commands that send, for `isinstance`."""


class Originals:
    """Reads originals for one node, after the step that named them is committed: then they are written.

    Called without the core's lock; may wait for the disk.
    """

    def __init__(self, core: Core, disk: Disk | None, payloads: Payloads) -> None:
        self._core = core
        self._payloads = payloads
        self._disk = disk
        self._one_reader = threading.Lock()
        """Limits reads to one thread at a time: a client may cause them often."""

    def equal(self, command: Sending, differing: Sequence[Differing]) -> frozenset[Differing]:
        """Those of `differing` that have the same content as their originals, up to the first that
        differs."""
        sent = _envelopes(command)
        with self._one_reader:
            originals = self._read([each for each in differing if _may_be_same(sent, each)])
        equal: list[Differing] = []
        for each in differing:
            original = sent[each.twin] if each.twin >= 0 else originals.get((each.target, each.sequence))
            if original is None or not self._same(sent[each.position], original):
                break  # the command is refused for this one
            equal.append(each)
        return frozenset(equal)

    def _read(self, differing: Sequence[Differing]) -> dict[tuple[str, int], Envelope]:
        """The originals that can be read, by target and sequence."""
        found: dict[tuple[str, int], Envelope] = self._core.read(partial(unsettled_originals, differing))
        missing = [each for each in differing if (each.target, each.sequence) not in found]
        if missing and self._disk is not None:
            try:
                found |= _journaled(self._disk, missing)
            except (DirectoryError, OSError) as error:
                log.warning("the original send cannot be read and compared: %s", error)
        return found

    def _same(self, one: Envelope, original: Envelope) -> bool:
        if not (_is_json(one) and _is_json(original)):
            return False
        get = self._payloads.get
        try:
            return same_json(whole(one, get).content, whole(original, get).content)
        except JournalDamaged as error:
            log.warning("the original send cannot be read and compared: %s", error)
            return False


def _journaled(disk: Disk, differing: Sequence[Differing]) -> dict[tuple[str, int], Envelope]:
    wanted = {each.sequence: each for each in differing}
    found: dict[tuple[str, int], Envelope] = {}
    for frame in find_frames(disk, wanted):
        base = frame.first_sequence
        for record in read_records(frame.payload):
            if isinstance(record, Accepted | Published):
                target = record.mailbox if isinstance(record, Accepted) else topic_target(record.topic)
                for sequence, envelope in enumerate(record.envelopes, base):
                    each = wanted.get(sequence)
                    if each is not None and (each.target, each.id) == (target, envelope.id):
                        found[target, sequence] = envelope
            base += record.count
    return found


def _envelopes(command: Sending) -> Sequence[Envelope]:
    """By position."""
    if isinstance(command, Publish):
        return command.envelopes
    return [envelope for _, envelopes in command.groups for envelope in envelopes]


def _may_be_same(sent: Sequence[Envelope], each: Differing) -> bool:
    """Whether the original is worth reading."""
    return each.twin < 0 and _is_json(sent[each.position])


def _is_json(envelope: Envelope) -> bool:
    return envelope.encoding in (Encoding.JSON, Encoding.JSON_IN_FILE)
