"""The protocol's page says what the server does."""

from __future__ import annotations

import importlib
import pkgutil

import relaymesh.server
from relaymesh.errors import MeshError
from relaymesh.server.codes import BY_NAME
from relaymesh.server.security import refusals
from tests.server.protocol.page import PATH, page

NOT_FROM_A_SERVER = {
    "MESH_ERROR": "a branch of the tree",
    "UNREACHABLE": "the client could not reach the node",
    "NO_ANSWER": "the client waited for an answer in vain",
    "TASK_FAILED": "the client waited for a result, and the task ended without one",
    "DIRECTORY_IN_USE": "the node does not start",
    "RECORD_UNREADABLE": "the node does not start",
    "ASIDE_INVALID": "the node does not start",
    "FORMAT_TOO_NEW": "the node does not start",
    "STORE_MISCONFIGURED": "the node does not start",
}


def test_the_page_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == page(), "stale: run python -m tests.server.protocol.page"


def _kinds(kind: type[MeshError]) -> set[type[MeshError]]:
    return {kind}.union(*map(_kinds, kind.__subclasses__()))


def test_every_code_that_a_server_can_answer_with_is_on_the_page() -> None:
    for module in pkgutil.walk_packages(relaymesh.server.__path__, "relaymesh.server."):
        importlib.import_module(module.name)
    ours = [
        kind
        for kind in _kinds(MeshError)
        if kind.__module__.startswith(("relaymesh.errors", "relaymesh.server"))
    ]
    codes = {kind.code for kind in ours} | {
        each.code for each in vars(refusals).values() if isinstance(each, refusals.Refusal)
    }
    assert codes - BY_NAME.keys() == NOT_FROM_A_SERVER.keys()
    text = PATH.read_text(encoding="utf-8")
    assert [code for code in BY_NAME if f"`{code}`" not in text] == []


def test_the_guard_answers_with_the_status_that_the_page_says() -> None:
    for each in vars(refusals).values():
        if isinstance(each, refusals.Refusal) and each is not refusals.FORBIDDEN:
            assert each.status == BY_NAME[each.code].status, each.code
