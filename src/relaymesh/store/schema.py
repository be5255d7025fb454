"""The schema: the sum of the numbered files in `sql/`, applied once each, in order.

`user_version` holds the number of the last one applied. A file is never changed once released; a
change is a new file. A database with a higher number than the last file here was written by a newer
RelayMesh and is left alone.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import NamedTuple

import apsw

from relaymesh.errors import FormatTooNew

_NUMBERED = re.compile(r"(\d{4})_\w+\.sql\Z")


class Migration(NamedTuple):
    number: int
    name: str
    text: str


def migrations() -> list[Migration]:
    """All of them, in order; numbered 1, 2, 3 … without gaps."""
    found = []
    for file in (resources.files("relaymesh.store") / "sql").iterdir():
        numbered = _NUMBERED.match(file.name)
        if numbered:
            found.append(Migration(int(numbered[1]), file.name, file.read_text(encoding="utf-8")))
    return sorted(found)


def migrate(connection: apsw.Connection, path: str) -> None:
    """Bring the schema up to date. Each file is one transaction, together with its number."""
    version = int(connection.pragma("user_version"))
    known = migrations()
    if version > known[-1].number:
        raise FormatTooNew(
            f"{path} has schema version {version}; this RelayMesh knows versions up to {known[-1].number}"
        )
    for migration in known:
        if migration.number > version:
            with connection:
                connection.execute(migration.text)
                connection.pragma("user_version", migration.number)
