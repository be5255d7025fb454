"""What commands have in common: where the data is, how the answer is printed, and the fields of a message."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relaymesh.cli.output import Output
from relaymesh.errors import NotFound
from relaymesh.sdk.place import data_directory

Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="PATH", help="Data directory; else RELAYMESH_HOME, else ~/.relaymesh."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


@dataclass(frozen=True, slots=True)
class Globals:
    """`--dir` and `--json` given before the command."""

    directory: Path | None = None
    json: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One command being run: where it writes to, and which directory it is about."""

    output: Output
    given: Path | None

    @property
    def path(self) -> Path:
        """The data directory, whether or not there is one."""
        return data_directory(self.given)

    def existing(self) -> Path:
        """The data directory of a mesh that is there."""
        path = self.path
        if not (path / "journal").is_dir():
            raise NotFound(
                f"there is no mesh in {path}",
                hint="name its directory with --dir, or make one: relaymesh send NAME CONTENT --create",
            )
        return path


def begin(context: typer.Context, directory: Path | None, json: bool) -> Call:
    given = context.obj if isinstance(context.obj, Globals) else Globals()
    return Call(Output(json=json or given.json), given.directory if directory is None else directory)


Sender = Annotated[str, typer.Option("--from", metavar="NAME", help="Who sends it; its mailbox is made.")]
Content = Annotated[str, typer.Argument(metavar="CONTENT", help="The content, or - to read it from stdin.")]
AsJson = Annotated[bool, typer.Option("--content-json", help="The content must be JSON, of any kind.")]
AsText = Annotated[bool, typer.Option("--content-text", help="The content is text, whatever it looks like.")]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Idempotent: the same id within a day is the same message."),
]
Type = Annotated[str, typer.Option("--type", metavar="TYPE", help="What kind of message it is.")]
Priority = Annotated[
    str | None,
    typer.Option(
        "--priority",
        metavar="PRIORITY",
        help="1 to 5, or critical, high, normal, low, background; else by type.",
    ),
]
Task = Annotated[
    str | None, typer.Option("--task", metavar="TASK", help="Messages of one task are handled in order.")
]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Ordering key, in place of the task.")]
DelayMs = Annotated[
    float, typer.Option("--delay-ms", metavar="MS", help="Deliver it so many milliseconds from now.")
]
Ttl = Annotated[float, typer.Option("--ttl", metavar="SECONDS", help="Expires after this; 0 for never.")]
CorrelationId = Annotated[
    str | None, typer.Option("--correlation-id", metavar="ID", help="What this belongs to.")
]
ReplyTo = Annotated[
    str | None, typer.Option("--reply-to", metavar="NAME", help="Who gets the answer, if not the sender.")
]
RequiresAck = Annotated[
    bool, typer.Option("--requires-ack", help="Tell the sender when it is handled, or given up.")
]
Tags = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be given several times.")
]
MaxRetries = Annotated[
    int | None, typer.Option("--max-retries", min=0, metavar="N", help="Retries before it is a dead letter.")
]


def priority_of(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() else text


def given_fields(**fields: Any) -> dict[str, Any]:
    """The fields somebody gave: what is left out keeps the SDK's own default."""
    return {name: value for name, value in fields.items() if value is not None}
