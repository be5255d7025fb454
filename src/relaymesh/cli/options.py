"""What commands have in common: where the data is, how the answer is printed, and the fields of a message."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relaymesh.cli.output import Output
from relaymesh.client.settings import Transport
from relaymesh.errors import InvalidSettings, NotFound
from relaymesh.sdk.location import URL_SCHEMES, data_directory
from relaymesh.sdk.mesh import Mesh

Dir = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        metavar="PATH",
        help="Data directory; else RELAYMESH_HOME, relaymesh.toml here, ~/.relaymesh.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="Ask the node at http://host:port; else RELAYMESH_URL."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        help="Access token. Prefer RELAYMESH_TOKEN: arguments are visible in `ps`.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


@dataclass(frozen=True, slots=True)
class Globals:
    """`--dir`, `--url`, `--token` and `--json` given before the command."""

    directory: Path | None = None
    json: bool = False
    url: str | None = None
    token: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One command being run: where it writes to, and which mesh it is about."""

    output: Output
    given: Path | None
    url: str | None = None
    token: str | None = None

    @property
    def remote(self) -> bool:
        """Whether a node is asked, in place of a directory being opened."""
        return self.url is not None

    @property
    def path(self) -> Path:
        """The data directory, whether or not there is one."""
        if self.url is not None:
            raise InvalidSettings(
                f"this command works on the files of a mesh, and {self.url} is a node",
                hint="run it where its data directory is, with --dir",
            )
        if self.given is None and not os.environ.get("RELAYMESH_HOME"):
            from relaymesh.agents.team_file import FILE_NAME, mesh_directory  # most commands name a directory

            found = mesh_directory(Path(FILE_NAME))
            if found is not None:
                return found
        return data_directory(self.given)

    def existing(self) -> Path:
        """The data directory of a mesh that is there."""
        path = self.path
        if not (path / "journal").is_dir():
            raise NotFound(
                f"there is no mesh in {path}",
                hint="name its directory with --dir, or make one: --create of send and of workflow run",
            )
        return path

    def mesh(self, *, create: bool = False, transport: Transport = "websocket") -> Mesh:
        """The mesh: the node's, or the directory's. `create`: a directory is made where there is none."""
        if self.url is not None:
            return Mesh(self.url, token=self.token, transport=transport)
        return Mesh(self.path if create else self.existing())


def begin(
    context: typer.Context,
    directory: Path | None = None,
    json: bool = False,
    url: str | None = None,
    token: str | None = None,
) -> Call:
    """What the options say together. A directory that is named goes before a node of the environment."""
    given = context.obj if isinstance(context.obj, Globals) else Globals()
    directory = given.directory if directory is None else directory
    url = given.url if url is None else url
    if url is not None and directory is not None:
        raise InvalidSettings(
            "--dir is a directory and --url a node: give one of them", hint="leave out --dir or --url"
        )
    if url is None and directory is None:
        url = os.environ.get("RELAYMESH_URL") or None
    if url is not None and not url.startswith(URL_SCHEMES):
        raise InvalidSettings(f"--url {url!r} is no address of a node", hint="http://host:port")
    token = given.token if token is None else token
    if token is not None and url is None:
        raise InvalidSettings("--token is for a node", hint="name it with --url, or set RELAYMESH_URL")
    return Call(Output(json=json or given.json), directory, url, token)


Sender = Annotated[str, typer.Option("--from", metavar="NAME", help="The sender; its mailbox is created.")]
Content = Annotated[str, typer.Argument(metavar="CONTENT", help="The content, or - to read it from stdin.")]
AsJson = Annotated[bool, typer.Option("--content-json", help="The content must be JSON, of any kind.")]
AsText = Annotated[
    bool, typer.Option("--content-text", help="The content is text, even if it looks like JSON.")
]
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
    float, typer.Option("--delay-ms", metavar="MS", help="Deliver it this many milliseconds from now.")
]
Ttl = Annotated[float, typer.Option("--ttl", metavar="SECONDS", help="Expires after this; 0 for never.")]
CorrelationId = Annotated[
    str | None, typer.Option("--correlation-id", metavar="ID", help="What this belongs to.")
]
ReplyTo = Annotated[
    str | None,
    typer.Option("--reply-to", metavar="NAME", help="The agent that gets the answer, if not the sender."),
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
    """The fields that were given; the others keep the SDK's own default."""
    return {name: value for name, value in fields.items() if value is not None}
