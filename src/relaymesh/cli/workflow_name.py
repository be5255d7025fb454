"""A workflow on a command line: a file, or the name of a stored one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from relaymesh.cli.workflow_file import STDIN
from relaymesh.errors import InvalidValue, NotFound
from relaymesh.plans.naming import split_name
from relaymesh.sdk.mesh import Mesh

FILES = (".yaml", ".yml", ".json")

Name = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="A stored workflow; without a version the last one.")
]
FileOrName = Annotated[
    str,
    typer.Argument(
        metavar="FILE|NAME",
        help="The workflow's file, - for stdin, or the name of a stored workflow: NAME or NAME@VERSION.",
    ),
]


def stored_name(given: str) -> str | None:
    """The stored workflow that is meant; None: a file is. A file of the same name wins."""
    if given == STDIN or "/" in given or given.endswith(FILES) or _is_there(given):
        return None
    try:
        split_name(given)
    except InvalidValue:
        return None
    return given


def find_document(mesh: Mesh, name: str) -> Mapping[str, Any]:
    """The document of a stored workflow."""
    with file_or_name(name):
        document = mesh.workflow(name).document
    assert document is not None, "one that is shown has its document"
    return document


@contextmanager
def file_or_name(name: str) -> Iterator[None]:
    """Let a `NotFound` also speak of files: either may have been meant."""
    try:
        yield
    except NotFound as error:
        raise NotFound(f"there is no file {name!r}, and {error.message}", hint=error.hint) from None


def _is_there(file: str) -> bool:
    try:
        return Path(file).exists()
    except (OSError, ValueError):  # a NUL in the name, or one that is too long
        return False
