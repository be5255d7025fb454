"""Where a command's words go: data to stdout, notes to stderr; for people, or as one JSON object per line.

Much of what is printed was written by others: ids, names of fields, reasons, stack traces. None of it may
speak to the terminal. So every text passes `printable` here, on its way out, and styles are not part of a
text: a command that wants one passes `Styled`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

import msgspec

from relaymesh.cli.failure import Failure
from relaymesh.cli.table import Column, plain, table_lines
from relaymesh.printable import printable

BOLD, DIM, GREEN, RED, YELLOW = "1", "2", "32", "31", "33"


@dataclass(frozen=True, slots=True)
class Styled:
    """A part of a line, in a style of ours if the terminal has any."""

    text: str
    style: str


class Output:
    """One command's output. Streams are looked up when they are used, as `print` does."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    # -- data

    def rows(self, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, empty: str = "") -> int:
        """A table, or a JSON object per row. Returns how many rows; `empty` is said when there are none."""
        counted = _Counted(rows)
        if self.json:
            for row in counted:
                self.object(row)
        else:
            for number, line in enumerate(table_lines(columns, counted, width_of(sys.stdout))):
                self.line(Styled(line, BOLD) if number == 0 else line)
        if counted.count == 0 and empty:
            self.note(empty)
        return counted.count

    def record(self, fields: Mapping[str, Any]) -> None:
        """One thing: `name  value` lines, or one JSON object."""
        if self.json:
            self.object(fields)
            return
        width = max(map(len, fields))
        for name, value in fields.items():
            self.line(Styled(name.ljust(width), DIM), f"  {plain(value)}")

    def object(self, fields: Mapping[str, Any]) -> None:
        sys.stdout.write(json_text(fields) + "\n")

    def line(self, *parts: str | Styled) -> None:
        """One line, whatever its parts hold."""
        coloured = has_colour(sys.stdout)
        sys.stdout.write("".join([_shown(part, coloured) for part in parts]) + "\n")

    def text(self, text: str) -> None:
        """Several lines, as they are broken."""
        for line in text.splitlines():
            self.line(line)

    def flush(self) -> None:
        """Flush: a person watches."""
        sys.stdout.flush()

    # -- everything else

    def note(self, text: str) -> None:
        """Something worth knowing that is not the answer."""
        sys.stdout.flush()
        sys.stderr.write((json_text({"note": text}) if self.json else f"note: {printable(text)}") + "\n")

    def fail(self, failure: Failure) -> None:
        """The one line of an error."""
        sys.stderr.write((json_text(failure.fields()) if self.json else printable(failure.line())) + "\n")


def _shown(part: str | Styled, coloured: bool) -> str:
    if isinstance(part, str):
        return printable(part)
    text = printable(part.text)
    return f"\x1b[{part.style}m{text}\x1b[0m" if coloured else text


class _Counted:
    """Rows, and how many of them were drawn."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._rows = rows
        self.count = 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for row in self._rows:
            self.count += 1
            yield row


def json_text(value: Any) -> str:
    """One line. Bytes become base64, times ISO 8601, and what a terminal would obey its JSON escape."""
    text = msgspec.json.encode(value).decode()
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    """JSON's escape: `\\u` and the UTF-16 code, or the two of a pair."""
    code = character.encode("utf-16-be").hex()
    return "".join(f"\\u{code[i : i + 4]}" for i in range(0, len(code), 4))


def preview(content: Any) -> str:
    """Content in one line: text as it is, anything else as JSON."""
    if isinstance(content, bytes):
        return f"{len(content)} bytes"
    return content if isinstance(content, str) else json_text(content)


def has_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal; None when it is none, and lines may be as long as they are."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


@contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Leave out what one logger says, where it is told in better words."""
    named = logging.getLogger(logger)
    before, named.disabled = named.disabled, True
    try:
        yield
    finally:
        named.disabled = before


@contextmanager
def library_log(output: Output) -> Iterator[None]:
    """Warnings of the library become notes, in one line and without a traceback."""
    handler = _NoteHandler(output)
    logger = logging.getLogger("relaymesh")
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


class _NoteHandler(logging.Handler):
    def __init__(self, output: Output) -> None:
        super().__init__(logging.WARNING)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        cause = f" ({type(error).__name__}: {error})" if error is not None else ""
        try:
            self._output.note(" ".join(f"{record.getMessage()}{cause}".split()))
        except OSError:  # stderr has no reader: the library goes on
            return
