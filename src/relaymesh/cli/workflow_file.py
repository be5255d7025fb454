"""A workflow's file and a task's input, as they are named on a command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from relaymesh.cli.content import parse_json
from relaymesh.errors import InvalidEnvelope, InvalidPlan, NotFound
from relaymesh.kernel.tasks.plan import PLAN_BYTES_MAX, Plan
from relaymesh.plans.document import compile_plan
from relaymesh.plans.reading import read_plan
from relaymesh.wire.tasks import DOCUMENT_BYTES_MAX

STDIN = "-"

File = Annotated[
    str, typer.Argument(metavar="FILE", help="The workflow, in YAML or JSON; - to read it from stdin.")
]
Input = Annotated[
    str | None,
    typer.Option("--input", metavar="JSON", help="The input of the task: JSON, or @FILE to read it from."),
]


def read_document(file: str) -> dict[str, Any]:
    """The document in a file. Raises `InvalidPlan` with the name of the file."""
    data = _bytes(file, PLAN_BYTES_MAX)
    try:
        return read_plan(data)
    except InvalidPlan as error:
        raise _in_file(file, error) from None


def read_checked(file: str) -> Plan:
    """The plan in a file, checked whole."""
    document = read_document(file)
    try:
        return compile_plan(document)
    except InvalidPlan as error:
        raise _in_file(file, error) from None


def read_input(given: str | None) -> Any:
    """The value of `--input`; None without it."""
    if given is None:
        return None
    if not given.startswith("@"):
        return parse_json(given, "--input")
    data = _bytes(given[1:], DOCUMENT_BYTES_MAX)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidEnvelope(f"--input {given!r} is not valid UTF-8 at byte {error.start}") from None
    return parse_json(text, f"--input {given!r}")


def _bytes(file: str, most: int) -> bytes:
    """What a file holds, up to one byte more than is allowed: the reader refuses that."""
    if file == STDIN:
        return sys.stdin.buffer.read(most + 1)
    try:
        with Path(file).open("rb") as stream:
            return stream.read(most + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no file {file!r}", hint="check the path") from None
    except ValueError:  # a NUL in the name
        raise NotFound(f"{file!r} is no name of a file", hint="check the path") from None


def _in_file(file: str, error: InvalidPlan) -> InvalidPlan:
    hint = "correct the file" if error.hint == InvalidPlan.default_hint else error.hint
    name = "stdin" if file == STDIN else file
    return InvalidPlan(f"{name}: {error.message}", hint=hint)
