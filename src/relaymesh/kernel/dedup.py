"""Dedup at admission: the same id to the same target within the window is the same message.

While a message is unsettled its id leads to its sequence, and its entry holds the content. Once it is
settled, a `Seen` of some 100 bytes stays for the window (24 h), or one `SeenParcel` for all that were settled
together. The newest of them are kept in memory. Older ones may be forgotten here once the store has them;
then the shell looks an id up in the store before the step. `horizon` says which ids need that: everything
accepted after it is still in memory, so an id generated after it cannot be known to the store alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import xxhash

from relaymesh.kernel.entry import Entry
from relaymesh.kernel.envelope import IN_FILE, Envelope
from relaymesh.kernel.parcel import Parcel
from relaymesh.kernel.payload import the_reference

WINDOW_MS = 86_400_000
REMEMBERED_MAX = 100_000
DIGEST_SIZE = 16
TOPIC = "topic:"
SENDERS_MAX = 10_000
"""How many names are kept to be shared. A sender may use another name in each message."""


digest_of: Callable[[bytes], bytes] = xxhash.xxh3_128_digest
"""Tells equal content from other content. It is not a signature: a sender can only deceive itself."""


def content_digest(envelope: Envelope) -> bytes:
    """The digest of its content, also of content in a file: it does not depend on where content is kept."""
    if envelope.encoding >= IN_FILE and (reference := the_reference(envelope.content)) is not None:
        return reference.digest
    return digest_of(envelope.content)


def topic_target(topic: str) -> str:
    """The name of a topic as a target of dedup: no mailbox can have this name."""
    return TOPIC + topic


def topic_of(target: str) -> str | None:
    """The topic of such a target; None for a mailbox."""
    return target.removeprefix(TOPIC) if target.startswith(TOPIC) else None


class Senders:
    """Lets equal senders share one object: there are many remembered ids and few senders."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def shared(self, sender: str) -> str:
        known = self._known
        if len(known) >= SENDERS_MAX:
            known.clear()  # costs memory only: remembered ids keep their objects
        return known.setdefault(sender, sender)


class Seen(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is kept of an admitted message: enough to return its receipt again."""

    sequence: int
    at: int
    digest: bytes
    targets: int = 1
    due: int = 0
    sender: str = ""
    """Empty if an older version wrote it: the sender is not known then."""


class Differing(msgspec.Struct, frozen=True, gc=False):
    """A message whose bytes differ from those that its sender sent before under the same id.

    `sequence` is that of the original. If the original is in the same command, `twin` is its position there.
    """

    position: int
    target: str
    id: str
    sequence: int = -1
    twin: int = -1


NONE_EQUAL: frozenset[Differing] = frozenset()


class SeenParcel:
    """What is kept of a parcel of admitted messages."""

    __slots__ = ("_digests", "_index_of", "_senders", "at", "first", "ids")

    def __init__(self, parcel: Parcel, ids: list[str], senders: Senders) -> None:
        self.first = parcel.first
        self.at = parcel.accepted_at
        self.ids = ids
        self._digests = b"".join([digest_of(envelope.content) for envelope in parcel.envelopes])
        self._senders: str | list[str]
        """One sender for all, or one for each."""
        if parcel.sender is not None:
            self._senders = senders.shared(parcel.sender)
        else:
            self._senders = [senders.shared(envelope.sender) for envelope in parcel.envelopes]
        self._index_of: dict[str, int] | None = None

    @property
    def sequence(self) -> int:
        """The time of the last of them."""
        return self.first + len(self.ids) - 1

    def seen(self) -> Iterator[Seen]:
        """Each of them, in the order of `ids`."""
        return map(self._seen, range(len(self.ids)))

    def __getitem__(self, id: str) -> Seen:
        if self._index_of is None:
            self._index_of = {each: index for index, each in enumerate(self.ids)}
        return self._seen(self._index_of[id])

    def _seen(self, index: int) -> Seen:
        digest = self._digests[DIGEST_SIZE * index : DIGEST_SIZE * (index + 1)]
        senders = self._senders
        sender = senders if isinstance(senders, str) else senders[index]
        return Seen(self.first + index, self.at, digest, 1, self.at, sender)


Found = int | Seen | SeenParcel
"""What an id leads to: the sequence of an unsettled message, or what is kept of a settled one."""
Remembered = tuple[str, Sequence[str], Seen | SeenParcel]
"""A target, ids that were settled there together, and what they lead to."""


class Admitted:
    """Every id admitted within the window, by target (a mailbox or a topic)."""

    __slots__ = (
        "_by_target",
        "_order",
        "_remembered",
        "horizon",
        "remembered_max",
        "senders",
        "stored_through",
    )

    def __init__(self, remembered_max: int = REMEMBERED_MAX) -> None:
        self._by_target: dict[str, dict[str, Found]] = {}
        self._order: deque[Remembered] = deque()
        """In the order in which they were settled."""
        self._remembered = 0
        self.senders = Senders()
        self.horizon = -1
        self.remembered_max = remembered_max
        self.stored_through = 0
        """While replaying: what was settled below this sequence is in the store, and not remembered here."""

    def __len__(self) -> int:
        """How many settled ids are remembered."""
        return self._remembered

    def __iter__(self) -> Iterator[tuple[str, str, int | Seen]]:
        """Target and id of every known message, and its sequence or what is kept of it."""
        for target, known in self._by_target.items():
            for id, found in known.items():
                yield target, id, found[id] if isinstance(found, SeenParcel) else found

    def of(self, target: str) -> dict[str, Found]:
        """The ids of one target, to be read and extended in a loop."""
        known = self._by_target.get(target)
        if known is None:
            known = self._by_target[target] = {}
        return known

    def settle(self, target: str, entries: list[Entry]) -> None:
        """The entries are gone; their ids are remembered."""
        known = self.of(target)
        stored_through, shared = self.stored_through, self.senders.shared
        for entry in entries:
            envelope, at = entry.envelope, entry.accepted_at
            id, delay = envelope.id, envelope.delay_ms
            if entry.sequence < stored_through:
                del known[id]
                self.horizon = max(self.horizon, at)
                continue
            due = at + delay if delay > 0 else at
            digest = digest_of(envelope.content) if envelope.encoding < IN_FILE else content_digest(envelope)
            sender = shared(envelope.sender)
            self.remember(target, id, Seen(entry.sequence, at, digest, 1, due, sender))

    def settle_parcel(self, target: str, parcel: Parcel) -> bool:
        """`settle` for a whole parcel. Not done if one of its ids leads elsewhere by now.

        That is rare: ids of notices are not checked, so another sender may use the same id.
        """
        known = self.of(target)
        ids = parcel.ids
        if list(map(known.get, ids)) != list(parcel.sequences):
            return False
        if parcel.first < self.stored_through:
            # The store takes records whole, and a parcel is never more than one record accepted.
            for id in ids:
                del known[id]
            self.horizon = max(self.horizon, parcel.accepted_at)
            return True
        seen = SeenParcel(parcel, ids, self.senders)
        known.update(dict.fromkeys(ids, seen))
        self._order.append((target, ids, seen))
        self._remembered += parcel.count
        return True

    def remember(self, target: str, id: str, seen: Seen) -> None:
        self.of(target)[id] = seen
        self._order.append((target, (id,), seen))
        self._remembered += 1

    def forget(self, stored_through: int, now: int) -> None:
        """Drop ids past the window, and those in the store while more than `remembered_max` are left.

        A parcel is dropped whole.
        """
        order = self._order
        while order:
            target, ids, seen = order[0]
            expired = seen.at + WINDOW_MS <= now
            few = self._remembered <= self.remembered_max
            if not expired and (few or seen.sequence >= stored_through):
                return
            order.popleft()
            self._remembered -= len(ids)
            if not expired:
                self.horizon = max(self.horizon, seen.at)
            known = self._by_target.get(target)
            if known is None:
                continue  # each of these ids was admitted again, and forgotten since
            for id in ids:
                if known.get(id) is seen:
                    del known[id]
            if not known:
                del self._by_target[target]

    def remembered(self) -> list[Remembered]:
        """Settled ids in the order of settling, except ids admitted again: for a checkpoint."""
        found: list[Remembered] = []
        for item in self._order:
            target, ids, seen = item
            known = self._by_target.get(target, {})
            if list(map(known.get, ids)).count(seen) == len(ids):
                found.append(item)
            else:
                found += [(target, (id,), one) for _, id, one in each_of([item]) if known.get(id) is seen]
        return found


def each_of(remembered: Iterable[Remembered]) -> Iterator[tuple[str, str, Seen]]:
    """Target, id and what is kept, one by one."""
    for target, ids, seen in remembered:
        for id, one in zip(ids, [seen] if isinstance(seen, Seen) else seen.seen(), strict=True):
            yield target, id, one
