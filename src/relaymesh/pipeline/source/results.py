"""Results as hashes: bronze can compare results, but does not contain them."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from relaymesh.kernel.payload import REFERENCE_MARK, references_in, the_reference

__all__ = ["hash_of", "parts_hash"]

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[msgspec.Raw]).decode


def hash_of(result: bytes) -> str | None:
    """As the store's `result_hash`: sha256 of the bytes, in hex. A payload file is named by it.

    None of a result that was put together of parts in payload files: they are not read for it.
    """
    if REFERENCE_MARK not in result:
        return sha256(result).hexdigest()
    reference = the_reference(result)
    return None if reference is None else reference.sha256


def parts_hash(result: bytes) -> str | None:
    """Of an object or a list: what `hash_of` says of its values, in their order, hashed again.

    A task with several last steps, or whose last step has items, puts their results together. The hash of
    the whole does not follow from theirs; this one does.
    """
    filed: dict[bytes, str] = {}
    if REFERENCE_MARK in result:
        salt = sha256(result).hexdigest()  # no text can hold its own hash: a word with it stands for a file
        for each in references_in(result):
            word = f'"{salt} {each.sha256}"'.encode()
            filed[word] = each.sha256
            result = result.replace(each.encode(), word)
    try:
        parts = _parts(result)
    except (msgspec.MsgspecError, RecursionError):
        return None
    raw = [bytes(value) for value in (parts.values() if isinstance(parts, dict) else parts)]
    hashes = [filed.get(value) or sha256(value).hexdigest() for value in raw]
    return sha256("".join(hashes).encode()).hexdigest()
