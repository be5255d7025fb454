"""Telling a story step by step: as it happens for people, a JSON object per step for programs."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from relaymesh.cli.output import BOLD, DIM, GREEN, Output, Styled
from relaymesh.printable import printable

WIDTH_MAX = 80
INDENT = "    "


class Narrator:
    """Numbers the steps and keeps to 80 columns, also in a pipe."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._number = 0
        self._facts: list[dict[str, Any]] = []
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH_MAX
        self._width = min(WIDTH_MAX, max(40, columns))

    @contextmanager
    def step(self, name: str, title: str, why: str) -> Iterator[None]:
        """One step: its title, what there is to understand, and then the facts as they come."""
        self._number += 1
        self._facts = []
        output = self._output
        if not output.json:
            output.line(Styled(f"{self._number:>2}  {title}", BOLD))
            for line in textwrap.wrap(why, self._width - len(INDENT)):
                output.line(INDENT, Styled(line, DIM))
        yield
        if output.json:
            step = {"step": self._number, "name": name, "title": title, "why": why, "facts": self._facts}
            output.object(step)
        else:
            output.line()
        sys.stdout.flush()

    def fact(self, text: str, **values: Any) -> None:
        """Something that just happened; `values` are for programs."""
        if self._output.json:
            self._facts.append({"text": text, **values})
            return
        first, *more = textwrap.wrap(printable(text), self._width - len(INDENT) - 4, break_on_hyphens=False)
        self._output.line(INDENT, Styled("->", GREEN), f" {first}")
        for line in more:
            self._output.line(f"{INDENT}   {line}")
        sys.stdout.flush()

    def say(self, text: str = "") -> None:
        """Words between the steps, for people only."""
        if not self._output.json:
            self._output.text(text or "\n")
            sys.stdout.flush()
