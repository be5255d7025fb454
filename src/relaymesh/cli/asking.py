"""Asking before something is done that cannot be undone, or to many things at once."""

from __future__ import annotations

import sys

import typer

from relaymesh.cli.failure import Cancelled, ConfirmationNeeded
from relaymesh.printable import printable


def confirm(question: str, *, yes: bool) -> None:
    """Go on only with `--yes`, or when the person at the terminal says so."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfirmationNeeded(f"{question} there is no terminal to ask on", hint="add --yes to do it")
    if not typer.confirm(printable(question), err=True):
        raise Cancelled("you said no")
