"""The seal of a small JSON file: a checksum of its text, as its last field.

    {
     …,
     "checksum": "<SHA-256 of everything before this line>"
    }

The log of bronze is compared with its files, but a number that was changed in it may fit them by chance. A
file of an older version has no seal, and is believed.
"""

from __future__ import annotations

import hashlib

__all__ = ["is_broken", "sealed"]

_FIELD = b',\n "checksum": "'
_END = b'"\n}\n'


def sealed(text: bytes) -> bytes:
    """JSON of an object, indented by one, with its seal."""
    body = text.rstrip().removesuffix(b"}").rstrip()
    return body + _FIELD + _checksum(body) + _END


def is_broken(text: bytes) -> bool:
    """Whether the file was changed after it was sealed; without a seal it cannot be told."""
    body, field, end = text.rpartition(_FIELD)
    if not field:
        return b'"checksum"' in text[-100:]
    return end != _checksum(body) + _END


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()
