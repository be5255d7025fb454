"""The options that commands share, declared once: where the mesh is, and how the output is printed.

    @app.command("list")
    @mesh_command
    def list_tasks(call: Call, status: Annotated[…] = None) -> None: …

A command declares only its own options. Its first parameter is the `Call` made of the shared ones, which
`--help` shows last.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from inspect import Parameter
from typing import Any, Concatenate

import typer

from relaymesh.cli.options import Call, Dir, Json, Token, Url, begin

__all__ = ["directory_command", "mesh_command", "plain_command"]

Command = Callable[Concatenate[Call, ...], None]


def _option(name: str, annotation: Any, default: object = None) -> Parameter:
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


CONTEXT = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
DIRECTORY = _option("directory", Dir)
NODE = (_option("url", Url), _option("token", Token))
JSON = _option("json", Json, default=False)


def mesh_command(command: Command) -> Callable[..., None]:
    """Works on a directory or through a node: `--dir`, `--url`, `--token`, `--json`."""
    return _with_options(command, (DIRECTORY, *NODE, JSON))


def directory_command(command: Command) -> Callable[..., None]:
    """Works on the files of a mesh: `--dir`, `--json`."""
    return _with_options(command, (DIRECTORY, JSON))


def plain_command(command: Command) -> Callable[..., None]:
    """Needs no mesh: `--json`."""
    return _with_options(command, (JSON,))


def _with_options(command: Command, shared: Sequence[Parameter]) -> Callable[..., None]:
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [CONTEXT, *own, *shared]

    @functools.wraps(command)
    def run(context: typer.Context, **given: Any) -> None:
        call = begin(context, **{each.name: given.pop(each.name) for each in shared})
        command(call, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
