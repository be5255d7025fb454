"""Names that a person takes for one another: `coder`, `Coder`, `ｃｏｄｅｒ`, `сoder` with a Cyrillic letter.

A person reads a name and makes a token for it. `likeness` maps names that look alike to one text, so
that a second token, or an agent that registers, cannot pass for the first. It folds what Unicode folds
(NFKC, case, accents, invisible characters), the dots and dashes at the ends, the digits 0 and 1, and those
letters of other alphabets that look like a Latin one. It is no full table of confusables: two names that it
tells apart may still look alike in some font.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from relaymesh.errors import Conflict

__all__ = ["RESERVED_NAMES", "check_unlike", "is_reserved", "likeness"]

RESERVED_NAMES = frozenset({"mesh", "relaymesh", "system"})
"""The names under which the mesh itself sends."""

_ENDS = "._-+@"
_LETTERS = {
    "a": "аαɑ",
    "b": "ЬьвβᏏ",
    "c": "сϲᴄⅽ",
    "d": "ԁɗⅾ",
    "e": "еεҽ",
    "f": "ƒ",
    "g": "ɡց",
    "h": "һнհη",
    "i": "іιɩıӏ",
    "j": "јϳ",
    "k": "кκ",
    "l": "ⅼ1",
    "m": "мⅿ",
    "n": "пռ",
    "o": "оοσօ0",
    "p": "рρ",
    "q": "ԛգ",
    "r": "гᴦ",
    "s": "ѕꜱ",
    "t": "тτ",
    "u": "υսцᴜ",
    "v": "ѵνᴠⅴ",
    "w": "ԝωшᴡ",
    "x": "хχⅹ",
    "y": "уүγ",
    "z": "ᴢ",
}
_FOLDED = str.maketrans({other: latin for latin, others in _LETTERS.items() for other in others})
_ASCII = str.maketrans("01", "ol")


def likeness(name: str) -> str:
    """The same text for names that look alike."""
    if name.isascii():
        return name.lower().strip(_ENDS).translate(_ASCII)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    letters = [
        c for c in unicodedata.normalize("NFD", folded) if unicodedata.category(c) not in ("Mn", "Cf", "Me")
    ]
    return "".join(letters).strip(_ENDS).translate(_FOLDED)


def check_unlike(names: Iterable[str], known: Iterable[str]) -> None:
    """Raise `Conflict` if a new name looks like another one; `known` are the plain names in use already."""
    in_use = set(known)
    taken = {likeness(name): name for name in sorted(in_use)}
    for name in sorted(set(names) - in_use):
        other = taken.setdefault(likeness(name), name)
        if other != name:
            raise Conflict(
                f"{name!r} looks like {other!r}, which is another agent's name",
                hint="give the agent a name that cannot be taken for the other",
            )


def is_reserved(name: str) -> bool:
    """Whether a plain name is one of the mesh's own, or looks like one."""
    return likeness(name) in RESERVED_NAMES
