"""Stored workflows, as a credential may put, see, run and remove them.

| needs | what |
|---|---|
| `write` | put, run, remove |
| `read` | show, list |

A workflow belongs to the namespace of its owner; one of another namespace is not there.
"""

from __future__ import annotations

from functools import partial

import msgspec

from relaymesh.errors import InvalidValue, NotFound
from relaymesh.kernel.address import namespace_of
from relaymesh.kernel.query import ListWorkflows
from relaymesh.kernel.tasks.advance import SENDER_NAME
from relaymesh.kernel.tasks.commands import RemoveVersions, Stored, workflow_name
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.server.tasks import LARGE_BYTES, Tasks
from relaymesh.wire.tasks import FindWorkflow, PutWorkflow


class Workflows(Tasks):
    """The workflows of a node, for one credential."""

    def home(self, name: str, namespace: str | None = None) -> tuple[str, str]:
        """The namespace and the name of `release`, or of `team/release`. Refuses another namespace."""
        given, slash, plain = name.rpartition("/")
        home = given if slash else namespace or self._namespace
        plain = workflow_name(plain)
        if not self._principal.everywhere and home != self._principal.namespace:
            raise missing(plain)
        return home, plain

    def owner_at(self, name: str, given: str | None) -> tuple[str, str]:
        """Who pays for what is done with the workflow of this name, and its plain name."""
        home, plain = self.home(name)
        if given is None and self._principal.everywhere and home != self._namespace:
            return f"{home}/{SENDER_NAME}", plain
        owner = self.owner(given)
        if "/" in name and namespace_of(owner) != home:
            raise InvalidValue(f"owner {owner!r} is not in namespace {home!r}")
        return owner, plain

    async def put(self, request: PutWorkflow) -> Stored:
        """Check it in another thread, then keep it. Its owner was stamped before."""
        request.budget = self._served.budget
        make = partial(self._served.node.workflows.put_command, request)
        if len(request.document) > LARGE_BYTES:
            async with self._account.long_work:
                command = await self._served.off_loop(make)
        else:
            command = await self._served.off_loop(make)
        return await self._served.session.put(command)

    async def found(self, name: str, version: str, namespace: str | None = None) -> WorkflowView | None:
        """With its document; None: there is none in this namespace."""
        try:
            request = FindWorkflow(*self.home(name, namespace), version)
        except NotFound:
            return None
        return await self._served.session.execute(request)

    async def all(self, query: ListWorkflows) -> list[WorkflowView]:
        """Without their documents."""
        if not self._principal.everywhere:
            if query.namespace not in (None, self._principal.namespace):
                return []
            query.namespace = self._principal.namespace
        return await self._served.session.execute(query)

    async def remove(self, name: str, version: str, namespace: str | None = None) -> int:
        home, plain = self.home(name, namespace)
        return await self._served.session.execute(RemoveVersions(home, plain, version, self._by))


def named(name: str, version: str) -> bytes:
    """What a submit is given in place of a document."""
    return msgspec.json.encode(f"{name}@{version}" if version else name)


def missing(name: str, version: str = "") -> NotFound:
    what = f"no version {version} of workflow {name!r}" if version else f"no workflow {name!r}"
    return NotFound(
        f"there is {what} here", hint="GET /v1/workflows, or relaymesh workflow list, shows what there is"
    )
