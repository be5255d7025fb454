"""Workflows of a node: makes kernel commands of documents."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from relaymesh.errors import InvalidPlan, InvalidValue, MeshError
from relaymesh.kernel.address import name_of, namespace_of
from relaymesh.kernel.query import ShowWorkflow
from relaymesh.kernel.tasks.advance import SENDER_NAME
from relaymesh.kernel.tasks.commands import PutVersion, Submit, workflow_version
from relaymesh.kernel.tasks.plan import Plan
from relaymesh.kernel.tasks.stored import WorkflowView, missing
from relaymesh.node.terms import Terms, Values, default_values, terms_of
from relaymesh.plans.document import DeclaredInput, compile_plan, compile_workflow
from relaymesh.plans.identity import canonical, key_of
from relaymesh.plans.naming import document_digest, split_name
from relaymesh.wire.content import check_sound
from relaymesh.wire.tasks import PutWorkflow, SubmitTask

__all__ = ["Workflows", "decoded", "whole_document"]

OWNERLESS = frozenset({"mesh", SENDER_NAME})
"""Names that stand for the mesh itself: they have no mailbox."""
KEPT_MAX = 64
KEPT_BYTES_MAX = 65_536
"""Documents that are not compiled again, and the largest of them: a workflow is submitted many times."""


class Workflows:
    """Makes commands of workflows. `new_ids`: makes ids; `find`: finds a stored workflow in the kernel."""

    def __init__(
        self,
        new_ids: Callable[[int], list[str]],
        find: Callable[[ShowWorkflow], WorkflowView | None],
        values: Values = default_values,
    ) -> None:
        self._new_ids = new_ids
        self._find = find
        self._values = values

    def command(self, request: SubmitTask) -> Submit:
        """Compile and check a workflow; nothing is written yet."""
        if request.notify and name_of(request.owner) in OWNERLESS:
            raise InvalidValue(
                "notify is mail to the owner of the task, and it has none", hint="name an agent as owner"
            )
        document, input = request.document, decoded(request.input, "the input")
        if document.lstrip(b" \t\r\n").startswith(b'"'):
            document = self._stored(decoded(document, "the workflow"), namespace_of(request.owner))
        compiled = _compiled if len(document) <= KEPT_BYTES_MAX else _compiled.__wrapped__
        workflow = compiled(document, namespace_of(request.owner), terms_of(self._values()))
        workflow.input.check(input)
        digest = key_of(workflow.canonical, canonical(input), workflow.version)
        return Submit(
            self._new_ids(1)[0],
            workflow.plan,
            request.input,
            request.key or digest,
            bytes.fromhex(digest),
            request.owner,
            request.trace,
            again=request.again,
            budget=request.budget,
            reply_to=request.reply_to,
            notify=request.notify,
        )

    def _stored(self, name: str, namespace: str) -> bytes:
        """The document of `release` or `release@3`, with its version: it is part of the request's key."""
        try:
            wanted = ShowWorkflow(namespace, *split_name(name))
        except InvalidValue as error:
            raise InvalidPlan(error.message, hint=error.hint) from None
        found = self._find(wanted)
        if found is None:
            raise missing(wanted.name, wanted.version)
        return whole_document(found).document or b"null"

    def put_command(self, request: PutWorkflow) -> PutVersion:
        """Check a workflow whole; nothing is written yet."""
        document = decoded(request.document, "the workflow")
        plan = compile_plan(document, namespace_of(request.owner))
        if request.version and plan.version and request.version != plan.version:
            raise InvalidPlan(
                f"workflow {plan.name!r}: the document has version {plan.version!r}, not {request.version!r}",
                hint="leave one of the two out",
            )
        version = workflow_version(request.version or plan.version)
        rest = {field: value for field, value in document.items() if field not in ("workflow", "version")}
        bare = {"workflow": plan.name, **rest}
        digest = document_digest(bare)
        return PutVersion(
            plan.name, version, msgspec.json.encode(bare), digest, request.owner, request.budget
        )


def whole_document(view: WorkflowView) -> WorkflowView:
    """With its version in the document, as a file would have it."""
    if view.document is None:
        return view
    named = msgspec.json.encode({"workflow": view.name})[:-1]
    versioned = msgspec.json.encode({"workflow": view.name, "version": view.version})[:-1]
    assert view.document.startswith(named), "a document begins with its name: see put_command"
    return msgspec.structs.replace(view, document=versioned + view.document[len(named) :])


class Compiled(NamedTuple):
    """The parts of a document that do not depend on the input."""

    plan: Plan
    input: DeclaredInput
    canonical: bytes
    version: bytes
    """Canonical too."""


@lru_cache(maxsize=KEPT_MAX)
def _compiled(document: bytes, namespace: str, terms: Terms) -> Compiled:
    value = decoded(document, "the workflow")
    plan, input = compile_workflow(value, namespace, terms.steps)
    return Compiled(terms.on(plan), input, canonical(value), canonical(plan.version))


def decoded(data: bytes, what: str) -> Any:
    """The value of JSON that came from a caller. Raises `InvalidPlan`."""
    try:
        check_sound(data, what=what)
        return msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidPlan(f"{what} is no JSON: {error}") from None
    except MeshError as error:
        raise InvalidPlan(error.message) from None
