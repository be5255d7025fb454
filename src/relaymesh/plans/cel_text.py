"""The text of expressions: its end, the steps and names that it reads, and whether it may be compiled.

The library parses CEL. This module only cuts the text into tokens, because the library does not report the
fields of variables that an expression reads, and because `}}` may be inside a string or a map.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from relaymesh.kernel.tasks.plan import EXPRESSION_LENGTH_MAX

OPENING = "${{"
TOKENS_MAX = 500
"""The library recurses once for each operator of a chain: more would overflow the stack of a small thread."""
LOOPS_NESTED_MAX = 2
"""Three nested loops over long lists would take hours, and cannot be interrupted."""
LOOPS = frozenset({"all", "exists", "exists_one", "filter", "map"})
ROOTS = ("steps", "input", "item", "index")
UNDO_ROOTS = (*ROOTS, "output", "uncertain")
"""What the expressions of `compensate` may read."""

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<string>
        (?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')
      | [bB]?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      )
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9](?:[0-9A-Za-z]|\.[0-9]|(?<=[eE])[+-])*)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_PLAIN = rf"(?:{'|'.join(ROOTS)})(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
_PLAIN_PATH = re.compile(_PLAIN, re.ASCII)
_PLAIN_PIECE = re.compile(rf"\$\{{\{{\s*({_PLAIN})\s*\}}\}}", re.ASCII)
PLAIN_LENGTH_MAX = 256
_RESERVED = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    }
)
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\'": "'", "\\n": "\n", "\\t": "\t", "\\r": "\r"}


class Token(msgspec.Struct, frozen=True):
    kind: str
    text: str
    end: int


class Malformed(Exception):
    """The text of an expression cannot be used. The message is one line."""


class Path(msgspec.Struct, frozen=True):
    """Fields read one after another: `steps`, `plan`, `output`, `targets`, 0."""

    parts: tuple[str | int, ...]
    called: bool = False
    """Whether a call follows: the last name is then a function's."""


def tokens(text: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """The tokens, without spaces and comments."""
    for match in _TOKEN.finditer(text, start, len(text) if end is None else end):
        kind = match.lastgroup or "sign"
        if kind != "space":
            yield Token(kind, match.group(), match.end())


@lru_cache(maxsize=32)
def tokens_of(expression: str) -> tuple[Token, ...]:
    """All tokens, cached because several checks of one expression follow each other."""
    return tuple(tokens(expression))


def pieces(text: str) -> list[tuple[bool, str]]:
    """A text cut into plain parts (False) and expressions (True)."""
    return list(_pieces(text) if len(text) <= EXPRESSION_LENGTH_MAX else _pieces.__wrapped__(text))


@lru_cache(maxsize=1024)
def _pieces(text: str) -> tuple[tuple[bool, str], ...]:
    if plain := _PLAIN_PIECE.fullmatch(text):
        return ((True, plain[1]),)
    found: list[tuple[bool, str]] = []
    start = 0
    while (opening := text.find(OPENING, start)) >= 0:
        if opening > start:
            found.append((False, text[start:opening]))
        inside = opening + len(OPENING)
        end = _closing(text, inside)
        found.append((True, text[inside : end - 2].strip()))
        start = end
    if start < len(text):
        found.append((False, text[start:]))
    return tuple(found)


def _closing(text: str, start: int) -> int:
    """The end of the expression that starts here, after its `}}`."""
    depth = 0
    last = -1
    for token in tokens(text, start, start + EXPRESSION_LENGTH_MAX + 8):
        if token.text == "{":
            depth += 1
        elif token.text == "}":
            if depth:
                depth -= 1
            elif last == token.end - 1:
                return token.end
            else:
                last = token.end
    if len(text) - start > EXPRESSION_LENGTH_MAX:
        raise Malformed(f"an expression has no end within {EXPRESSION_LENGTH_MAX} characters")
    raise Malformed(f"'${{{{' without '}}}}': {text[start - 3 : start + 37]!r}")


def bare(text: Any) -> str:
    """The expression of a text that is one `${{ … }}` and nothing else."""
    found = pieces(text) if isinstance(text, str) else []
    if len(found) != 1 or not found[0][0]:
        raise Malformed("must be one expression ${{ … }}")
    return found[0][1]


@lru_cache(maxsize=1024)
def plain_path(expression: str) -> tuple[str, ...] | None:
    """The fields of an expression that only reads a value, such as `steps.plan.output`; most do. None: any
    other expression. The library would return such a value unchanged, so it is not called.
    """
    if len(expression) > PLAIN_LENGTH_MAX or not _PLAIN_PATH.fullmatch(expression):
        return None
    parts = tuple(expression.split("."))
    return parts if _RESERVED.isdisjoint(parts) else None


def check_text(expression: str) -> None:
    """Refuses an expression that is too long, or that the library might not survive."""
    if not expression:
        raise Malformed("the expression is empty")
    size = len(expression.encode("utf-8", "surrogatepass"))
    if size > EXPRESSION_LENGTH_MAX:
        raise Malformed(f"an expression has {size} bytes; {EXPRESSION_LENGTH_MAX} are allowed")
    found = tokens_of(expression)
    if len(found) > TOKENS_MAX:
        raise Malformed(f"an expression has {len(found)} tokens; {TOKENS_MAX} are allowed")
    if loops_nested(expression) > LOOPS_NESTED_MAX:
        raise Malformed(f"loops are nested deeper than {LOOPS_NESTED_MAX}")


@lru_cache(maxsize=1024)
def loops_nested(expression: str) -> int:
    """How deep its loops are nested; 0: it has no loop."""
    deepest = 0
    before = ""
    open_loops: list[bool] = []
    for token in tokens_of(expression):
        if token.text == "(":
            open_loops.append(before in LOOPS)
            deepest = max(deepest, sum(open_loops))
        elif token.text == ")" and open_loops:
            open_loops.pop()
        before = token.text
    return deepest


def loop_names(expression: str) -> set[str]:
    """The names that loops bind: `x` of `list.map(x, x * 2)`."""
    found = tokens_of(expression)
    return {
        found[index + 2].text
        for index in range(len(found) - 3)
        if found[index].text in LOOPS
        and found[index + 1].text == "("
        and found[index + 2].kind == "name"
        and found[index + 3].text == ","
    }


def paths(expression: str) -> list[Path]:
    """The fields of the context that are read, as far as the text names them."""
    found = tokens_of(expression)
    roots = set(UNDO_ROOTS) - loop_names(expression)
    seen = []
    for index, token in enumerate(found):
        if token.kind == "name" and token.text in roots and (index == 0 or found[index - 1].text != "."):
            seen.append(_path(found, index))
    return seen


def _path(found: Sequence[Token], index: int) -> Path:
    parts: list[str | int] = [found[index].text]
    index += 1
    while index + 1 < len(found):
        sign, token = found[index].text, found[index + 1]
        if sign == "." and token.kind == "name":
            parts.append(token.text)
            index += 2
            continue
        closed = index + 2 < len(found) and found[index + 2].text == "]"
        part = _literal(token) if sign == "[" and closed else None
        if part is None:
            break
        parts.append(part)
        index += 3
    called = index < len(found) and found[index].text == "(" and len(parts) > 1
    return Path(tuple(parts), called)


def _literal(token: Token) -> str | int | None:
    """The value of a plain string or whole number; None: any other token."""
    if token.kind == "number":
        return int(token.text) if token.text.isdecimal() else None
    if token.kind != "string" or token.text[0] not in "\"'" or token.text[:3] in ('"""', "'''"):
        return None
    inside = token.text[1:-1]
    parts = re.split(r"(\\.)", inside)
    if any(part[0] == "\\" and part not in _ESCAPED for part in parts if part):
        return None
    return "".join([_ESCAPED.get(part, part) for part in parts])


def written(parts: tuple[str | int, ...]) -> str:
    """A path as CEL reads it: `steps["x-y"].output[0]`."""
    text = str(parts[0])
    for part in parts[1:]:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _IDENTIFIER.fullmatch(part) and part not in _RESERVED:
            text += f".{part}"
        else:
            quoted = part.replace("\\", "\\\\").replace('"', '\\"')
            text += '["' + quoted.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"]'
    return text
