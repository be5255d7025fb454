"""Workflows that a namespace keeps, by name and version.

A version never changes: it is put once, and may be removed. A task has its own plan, so neither a put nor a
removal changes a running task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from relaymesh.errors import NotFound
from relaymesh.kernel.charges import Charges
from relaymesh.kernel.records import WorkflowPut, WorkflowRemoved
from relaymesh.kernel.tasks.numbering import Numbers

if TYPE_CHECKING:
    from relaymesh.kernel.state import State

WORKFLOW_BYTES = 512
"""Memory of a version, without its document."""
VERSIONS_MAX = 100
"""Versions of one workflow."""
NAMES_MAX = 1_000
"""Workflows of one namespace."""
NAMESPACE_BYTES_MAX = 67_108_864
"""Documents of one namespace, all versions together."""

Name = tuple[str, str]
"""The namespace and the name of a workflow."""


class StoredVersion(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One version of a workflow. `document` is JSON without its version; `digest`: that of its canonical
    form."""

    namespace: str
    name: str
    version: str
    document: bytes
    digest: bytes
    owner: str
    at: int
    sequence: int

    @property
    def size(self) -> int:
        return WORKFLOW_BYTES + len(self.document)


class WorkflowView(msgspec.Struct, frozen=True, gc=False):
    """A version as it is shown. `versions`: how many its workflow has; `size`: of the document, in bytes."""

    name: str
    version: str
    owner: str
    digest: bytes
    at: int
    sequence: int
    size: int
    versions: int
    document: bytes | None = None
    """JSON; None in a list."""


class StoredWorkflows:
    """The versions of each workflow, in the order in which they were put."""

    def __init__(self, charges: Charges) -> None:
        self._charges = charges
        self._live = False
        self._versions: dict[Name, dict[str, StoredVersion]] = {}
        self._names: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        """Workflows and bytes of documents, by namespace."""
        self.numbers = Numbers()

    # -- records

    def effects(self, state: State) -> dict[type, Callable[[Any], None]]:
        """What each record about workflows does."""
        return {
            WorkflowPut: lambda record: self.put(record, state.sequence),
            WorkflowRemoved: self.removed,
        }

    def put(self, record: WorkflowPut, sequence: int) -> None:
        """`sequence`: of its event."""
        stored = StoredVersion(
            record.namespace,
            record.name,
            record.version,
            record.document,
            record.digest,
            record.owner,
            record.at,
            sequence,
        )
        self._add(stored)

    def restore(self, stored: Sequence[StoredVersion]) -> None:
        """What a snapshot had."""
        for each in stored:
            self._add(each)

    def _add(self, stored: StoredVersion) -> None:
        name = stored.namespace, stored.name
        versions = self._versions.get(name)
        if versions is None:
            versions = self._versions[name] = {}
            self._names[stored.namespace] += 1
        before = versions.pop(stored.version, None)
        if before is not None:  # the record that removed it is set aside
            self._count(before, -1)
        versions[stored.version] = stored
        self._count(stored, 1)
        self.numbers.put(*name, stored.version)

    def removed(self, record: WorkflowRemoved) -> None:
        """An unknown version is skipped: the record that put it may be set aside."""
        name = record.namespace, record.name
        versions = self._versions.get(name, {})
        for version in record.versions:
            if version in versions:
                self._count(versions.pop(version), -1)
        if not versions and self._versions.pop(name, None) is not None:
            self._names[record.namespace] -= 1
            self.numbers.gone(*name)

    def go_live(self) -> None:
        """After a replay: charge the owners."""
        self._live = True
        for stored in self:
            self._charges.add(stored.owner, stored.size)

    def _count(self, stored: StoredVersion, sign: int) -> None:
        self._bytes[stored.namespace] += sign * len(stored.document)
        if self._live:
            self._charges.add(stored.owner, sign * stored.size)

    # -- looking

    def __iter__(self) -> Iterator[StoredVersion]:
        for versions in self._versions.values():
            yield from versions.values()

    def versions(self, namespace: str, name: str) -> list[StoredVersion]:
        """The oldest first; empty: there is no such workflow."""
        return list(self._versions.get((namespace, name), {}).values())

    def names(self, namespace: str) -> int:
        """How many workflows a namespace has."""
        return self._names[namespace]

    def bytes_of(self, namespace: str) -> int:
        """How many bytes the documents of a namespace have."""
        return self._bytes[namespace]

    def find(self, namespace: str, name: str, version: str = "") -> WorkflowView | None:
        """One version with its document; without a version the one that was put last."""
        versions = self.versions(namespace, name)
        for stored in reversed(versions):
            if version in ("", stored.version):
                return view_of(stored, len(versions), document=True)
        return None

    def list(
        self, namespace: str | None, name: str | None, limit: int, before: int | None
    ) -> list[WorkflowView]:
        """The last version of each workflow, or every version of the one named; the newest first.

        `before`: only those put before this sequence.
        """
        found: list[WorkflowView] = []
        for (home, each), versions in self._versions.items():
            if namespace in (None, home) and name in (None, each):
                shown = [*versions.values()]
                found += [view_of(stored, len(shown)) for stored in (shown if name else shown[-1:])]
        found = [view for view in found if before is None or view.sequence < before]
        found.sort(key=lambda view: view.sequence, reverse=True)
        return found[:limit]


def missing(name: str, version: str = "") -> NotFound:
    what = f"no version {version} of workflow {name!r}" if version else f"no workflow {name!r}"
    return NotFound(f"there is {what} here", hint="relaymesh workflow list shows names and versions")


def view_of(stored: StoredVersion, versions: int, *, document: bool = False) -> WorkflowView:
    return WorkflowView(
        stored.name,
        stored.version,
        stored.owner,
        stored.digest,
        stored.at,
        stored.sequence,
        len(stored.document),
        versions,
        stored.document if document else None,
    )
