"""The options of a read, parsed once. Spark hands them over as text, their names in any case."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

import msgspec

from relaymesh.errors import InvalidSettings, NotFound
from relaymesh.journal import read_note
from relaymesh.journal.layout import JOURNAL, check_complete
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.source.naming import name_of

__all__ = ["Directory", "SourceOptions"]

Table = Literal["events", "quarantine"]
OnBadFrame = Literal["fail", "rows"]
OnDataLoss = Literal["fail", "skip"]

_Word = TypeVar("_Word", bound=str)

ROWS_PER_PARTITION = 250_000
ROWS_PER_BATCH = 1_000_000
OPTIONS_HINT = "docs/howto/cluster.md explains every option of the format"


@dataclass(frozen=True, slots=True)
class Directory:
    """A data directory: which mesh it is, which partition its events are, and where it is read.

    name: its mesh id, whatever its path; a directory that has none yet is named by its oldest segment's salt.
    given: the path as it was given.
    was: names that it had before, in offsets of older versions.
    first: the first event to read.
    """

    name: str
    partition: int
    root: str
    given: str
    was: tuple[str, ...] = ()
    first: int = 0

    def disk(self) -> RealDisk:
        return RealDisk(Path(self.root))


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceOptions:
    """What to read.

    path: data directories: one, several with commas, a JSON list, or a JSON object from directory to
        partition. In a list the first is partition 0, the next 1: add new ones at the end. In an object
        {"partition": 0, "name": "…"} also says what the column source holds in place of the mesh id; "was"
        lists names that a stream's offsets have for it from before, "first" is the first event to read.
    mirror: read each directory's mirror in its place.
    fromSequence, throughSequence: the first and the last event, both included.
    fromTime, toTime: mesh times (ISO 8601, UTC unless it says otherwise), the first included, the last not.
    includeContent: false leaves out what senders and handlers wrote: content, stack traces, the bytes of
        records that have no columns, and of the fields a sender added all but the numbers of `usage`.
    maxRowsPerBatch: how many rows a micro-batch takes, as whole frames; 0 is everything there is.
    rowsPerPartition: how many rows a task decodes. Fewer make more tasks.
    partitions: how many tasks a read is cut into, in place of rowsPerPartition.
    table: `events`, or `quarantine` for what does not read back.
    quarantine: what bad frames do to a read of events: `fail`, or `rows`, which leaves them to the
        quarantine table.
    onDataLoss: what events do that retention dropped before they were read: `fail`, or `skip`, which makes
        them a row of the quarantine table.
    consumer: a name under which a stream tells each node how far it has read: retention waits for it.
    into: a directory that driver and executors share: tasks write the events there as Parquet, and a row is a
        file (see files.py). What the files are for, and which of them count, is up to the reader.
    runId: what the column run_id of such files says.
    """

    directories: tuple[Directory, ...]
    first: int | None = None
    through: int = sys.maxsize
    from_ms: int | None = None
    to_ms: int | None = None
    content: bool = True
    batch_rows: int = ROWS_PER_BATCH
    rows: int = ROWS_PER_PARTITION
    tasks: int | None = None
    table: Table = "events"
    on_bad_frame: OnBadFrame = "fail"
    on_data_loss: OnDataLoss = "fail"
    consumer: str | None = None
    into: str | None = None
    run_id: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Raises `InvalidSettings` naming the option, `NotFound` naming the directory."""
        options = {name.lower(): value for name, value in given.items()}
        unknown = set(options) - _KNOWN
        if unknown:
            raise InvalidSettings(
                f"the format relaymesh has no option {', '.join(sorted(unknown))}",
                hint=f"it has {', '.join(sorted(_KNOWN))}",
            )
        through = _number(options, "throughsequence")
        batch_rows = _number(options, "maxrowsperbatch")
        return cls(
            first=_number(options, "fromsequence"),
            through=sys.maxsize if through is None else through,
            from_ms=_time_ms(options, "fromtime"),
            to_ms=_time_ms(options, "totime"),
            content=_flag(options, "includecontent", default=True),
            batch_rows=ROWS_PER_BATCH if batch_rows is None else batch_rows,
            rows=_number(options, "rowsperpartition", least=1) or ROWS_PER_PARTITION,
            tasks=_number(options, "partitions", least=1),
            table=_choice(options, "table", "events", get_args(Table)),
            on_bad_frame=_choice(options, "quarantine", "fail", get_args(OnBadFrame)),
            on_data_loss=_choice(options, "ondataloss", "fail", get_args(OnDataLoss)),
            consumer=options.get("consumer"),
            into=options.get("into"),
            run_id=options.get("runid"),
            directories=_directories(options, mirror=_flag(options, "mirror", default=False)),
        )


_KNOWN = {
    "path",
    "paths",
    "mirror",
    "fromsequence",
    "throughsequence",
    "fromtime",
    "totime",
    "includecontent",
    "maxrowsperbatch",
    "rowsperpartition",
    "partitions",
    "table",
    "quarantine",
    "ondataloss",
    "consumer",
    "into",
    "runid",
}


def _directories(options: Mapping[str, str], *, mirror: bool) -> tuple[Directory, ...]:
    named = _named(options.get("path") or options.get("paths") or "")
    if not named:
        raise InvalidSettings(
            "the option path is missing", hint='spark.read.format("relaymesh").load("a data directory")'
        )
    if len({entry.partition for entry in named.values()}) < len(named):
        raise InvalidSettings("the option path gives two directories the same partition", hint=OPTIONS_HINT)
    found: dict[str, Directory] = {}
    for path, entry in named.items():
        directory = _directory(path, entry, mirror=mirror)
        other = found.setdefault(directory.name, directory)
        if other is not directory:
            raise InvalidSettings(
                f"{other.given} and {directory.given} hold the same mesh",
                hint="name one of them: its events would be read twice",
            )
    return tuple(found.values())


_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct, frozen=True):
    partition: _Number
    name: str | None = None
    was: tuple[str, ...] = ()
    first: _Number = 0


def _named(path: str) -> dict[str, _Entry]:
    """Directory to partition, as the three ways of writing it say."""
    if not path.lstrip().startswith(("[", "{")):
        return {_clean(name): _Entry(i) for i, name in enumerate(filter(str.strip, path.split(",")))}
    try:
        given = json.loads(path)
    except ValueError as error:
        raise InvalidSettings(f"the option path is no JSON: {error}", hint=OPTIONS_HINT) from None
    pairs = given.items() if isinstance(given, dict) else [(name, i) for i, name in enumerate(given)]
    return {_clean(name): _entry(number) for name, number in pairs if _is_text(name)}


def _entry(given: object) -> _Entry:
    try:
        return msgspec.convert(given if isinstance(given, dict) else {"partition": given}, _Entry)
    except msgspec.ValidationError:
        raise _no_partition() from None


def _is_text(name: object) -> bool:
    if not isinstance(name, str):
        raise _no_partition()
    return True


def _no_partition() -> InvalidSettings:
    return InvalidSettings(
        "the option path must map names of directories to partitions 0, 1, 2, …", hint=OPTIONS_HINT
    )


def _clean(name: str) -> str:
    name = name.strip().removeprefix("file://")
    return name.rstrip("/") or "/"


def _directory(given: str, entry: _Entry, *, mirror: bool) -> Directory:
    root = Path(given).expanduser()
    if mirror:
        note = read_note(RealDisk(root))
        if note is None:
            raise NotFound(f"{given} has no mirror", hint="leave out mirror=true, or name the mirror as path")
        root = Path(note.path)
    if not root.is_dir():
        raise NotFound(
            f"there is no data directory {root}",
            hint="it was moved, or is not mounted: put it back; on a cluster every worker must see it",
        )
    if not (root / JOURNAL).is_dir():
        raise NotFound(
            f"there is no mesh in {root}",
            hint="name its data directory: the one that holds the folder journal/",
        )
    disk = RealDisk(root)
    check_complete(disk)
    name = entry.name or name_of(disk) or str(Path(given).expanduser().resolve())
    return Directory(name, entry.partition, str(root), given, entry.was, entry.first)


def _number(options: Mapping[str, str], name: str, least: int = 0) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise InvalidSettings(
            f"the option {name} must be a whole number from {least} on, not {text!r:.80}", hint=OPTIONS_HINT
        )
    return number


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidSettings(f"the option {name} must be true or false, not {text!r:.80}", hint=OPTIONS_HINT)
    return text == "true"


def _choice(options: Mapping[str, str], name: str, default: _Word, choices: tuple[_Word, ...]) -> _Word:
    text = options.get(name, default)
    for choice in choices:
        if text == choice:
            return choice
    raise InvalidSettings(
        f"the option {name} must be one of {', '.join(choices)}, not {text!r:.80}", hint=OPTIONS_HINT
    )


def _time_ms(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidSettings(
            f"the option {name} must be a time such as 2026-01-31T12:00:00Z, not {text!r:.80}",
            hint=OPTIONS_HINT,
        ) from None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
