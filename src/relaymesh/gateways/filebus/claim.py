"""Finding a claim again: the lease is in the name of its file, the rest in what the gateway wrote into it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from relaymesh.errors import MeshError
from relaymesh.gateways.filebus.folder import Folder
from relaymesh.gateways.filebus.held_files import Held, Spot
from relaymesh.gateways.filebus.letter import META_BYTES_MAX
from relaymesh.gateways.filebus.names import META, token_of
from relaymesh.gateways.filebus.session import live_leases
from relaymesh.kernel.bounds import TOKEN_MAX
from relaymesh.sdk.session import Session

LEASE_MS_MIN = 1_000
LEASE_MS_DEFAULT = 30_000
LEASE_MS_MAX = 3_600_000


class DeliveryWords(msgspec.Struct, rename="camel"):
    """The part of a delivery's meta file that the gateway itself needs again."""

    lease_ms: int = LEASE_MS_DEFAULT
    sequence: Annotated[int, Meta(ge=0, le=TOKEN_MAX)] | None = None
    settled: bool = False


class MetaWords(msgspec.Struct):
    to: str = ""
    delivery: DeliveryWords = msgspec.field(default_factory=DeliveryWords)


def read_words(folder: Folder, stem: str, owners: frozenset[int]) -> MetaWords:
    """What the file says; nothing, if a worker made it unreadable."""
    try:
        read = folder.read(stem + META, META_BYTES_MAX, owners)
        return MetaWords() if read is None else msgspec.json.decode(read[0], type=MetaWords)
    except (MeshError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return MetaWords()


def find_again(
    session: Session,
    agents: tuple[str, ...],
    claims: Iterable[tuple[str, Spot, MetaWords]],
) -> list[Held]:
    """Those whose lease is still good, and is a lease of an agent of this bus: a name can be forged."""
    named = {token_of(stem): (stem, spot, words) for stem, spot, words in claims}
    tokens = [token for token in named if token is not None]
    live = live_leases(session, tokens)
    now = session.now()
    found = []
    for token in tokens:
        stem, spot, words = named[token]
        settled = words.delivery.settled and token not in live
        mailbox = live.get(token) or (words.to if token in live or settled else "")
        if mailbox not in agents:
            continue
        length_ms = min(max(LEASE_MS_MIN, words.delivery.lease_ms), LEASE_MS_MAX)
        found.append(
            Held(
                stem=stem,
                token=token,
                mailbox=mailbox,
                sequence=words.delivery.sequence,
                length_ms=length_ms,
                deadline=now,  # unknown: renewed at the next look
                expires_at=0,
                spot=spot,
                moved_at=now,
                settled=settled,
            )
        )
    return found
