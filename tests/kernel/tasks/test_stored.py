"""Stored workflows: a version is put once, stays what it was, and survives a restart."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from relaymesh.errors import Conflict, InvalidValue, MeshError, OverBudget, PayloadTooLarge
from relaymesh.kernel import gaps
from relaymesh.kernel.query import ListWorkflows, ShowWorkflow
from relaymesh.kernel.records import WorkflowPut, WorkflowRemoved
from relaymesh.kernel.snapshot import Snapshot, restore
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks import numbering, pieces, stored
from relaymesh.kernel.tasks.commands import PutVersion, RemoveVersions, Stored
from relaymesh.kernel.tasks.stored import WORKFLOW_BYTES, WorkflowView
from tests.kernel.driver import Driver, replay, through_a_checkpoint
from tests.kernel.durable import durable

OWNER = "default/owner"


class Shelf(Driver):
    def put(self, text: str, version: str = "", *, name: str = "release", **fields: Any) -> Stored:
        owner = fields.pop("owner", OWNER)
        document = f'"{text}"'.encode()
        digest = sha256(document).digest()
        result: Stored = self.do(PutVersion(name, version, document, digest, owner, **fields)).result
        return result

    def remove(self, version: str = "", *, name: str = "release", namespace: str = "default") -> int:
        return int(self.do(RemoveVersions(namespace, name, version)).result)

    def show(self, version: str = "", *, name: str = "release", namespace: str = "default") -> Any:
        found: WorkflowView | None = self.kernel.look(ShowWorkflow(namespace, name, version))
        return None if found is None else (found.version, found.document)

    def listed(self, *given: Any, **fields: Any) -> list[tuple[str, str]]:
        return [(view.name, view.version) for view in self.kernel.look(ListWorkflows(*given, **fields))]


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def puts(shelf: Driver) -> list[str]:
    return [record.version for record in shelf.records if isinstance(record, WorkflowPut)]


def test_versions_count_from_1_and_the_last_one_is_shown(shelf: Shelf) -> None:
    assert [shelf.put(text).workflow.version for text in "abc"] == ["1", "2", "3"]
    assert shelf.show() == ("3", b'"c"')
    assert shelf.show("2") == ("2", b'"b"')
    assert shelf.show("4") is None
    assert shelf.show(name="other") is None


def test_a_repeated_put_changes_nothing(shelf: Shelf) -> None:
    first = shelf.put("a", "2.1")
    again, unnamed = shelf.put("a", "2.1"), shelf.put("a")
    assert (first.duplicate, again.duplicate, unnamed.duplicate) == (False, True, True)
    assert again.workflow == unnamed.workflow == first.workflow
    assert puts(shelf) == ["2.1"]


def test_an_earlier_document_put_again_is_a_new_version(shelf: Shelf) -> None:
    assert [shelf.put(text).workflow.version for text in "aba"] == ["1", "2", "3"]


def test_a_version_with_another_document_is_refused(shelf: Shelf) -> None:
    shelf.put("a", "1")
    with pytest.raises(Conflict, match="version 1 of workflow 'release'") as refused:
        shelf.put("b", "1")
    assert "another version" in refused.value.hint
    assert shelf.show() == ("1", b'"a"')


@pytest.mark.parametrize(
    ("named", "following"), [("7", "8"), ("2.1", "1"), ("v3", "1"), ("9" * 40, "1"), ("007", "8")]
)
def test_the_next_number_follows_the_largest_whole_number(shelf: Shelf, named: str, following: str) -> None:
    shelf.put("a", named)
    assert shelf.put("b").workflow.version == following


def test_namespaces_are_apart(shelf: Shelf) -> None:
    shelf.put("a")
    shelf.put("b", owner="team/owner")
    assert shelf.show() == ("1", b'"a"')
    assert shelf.show(namespace="team") == ("1", b'"b"')
    assert shelf.remove(namespace="team") == 1
    assert shelf.show() == ("1", b'"a"')


def test_a_list_has_the_last_version_of_each_and_all_versions_of_one(shelf: Shelf) -> None:
    for name, text in [("x", "1"), ("y", "1"), ("x", "2")]:
        shelf.put(text, name=name)
    shelf.put("1", name="z", owner="team/owner")
    assert shelf.listed("default") == [("x", "2"), ("y", "1")]
    assert shelf.listed("default", "x") == [("x", "2"), ("x", "1")]
    assert shelf.listed() == [("z", "1"), ("x", "2"), ("y", "1")]
    first = sequence_of(shelf, "x")
    assert shelf.listed("default", limit=1) == [("x", "2")]
    assert shelf.listed("default", before=first) == [("y", "1")]
    assert all(view.document is None for view in shelf.kernel.look(ListWorkflows()))


def sequence_of(shelf: Shelf, name: str) -> int:
    found = shelf.kernel.look(ShowWorkflow("default", name))
    assert found is not None
    return found.sequence


def test_removed_versions_are_gone_and_a_second_removal_does_nothing(shelf: Shelf) -> None:
    for text in "abc":
        shelf.put(text)
    assert (shelf.remove("3"), shelf.remove("3")) == (1, 0)
    assert shelf.show() == ("2", b'"b"')
    assert (shelf.remove(), shelf.remove()) == (2, 0)
    assert shelf.listed() == []
    workflows = shelf.kernel.state.workflows
    assert (workflows.names("default"), workflows.bytes_of("default")) == (0, 0)
    assert len([each for each in shelf.records if isinstance(each, WorkflowRemoved)]) == 2
    assert shelf.put("d").workflow.version == "4"


def test_a_number_is_never_used_twice(shelf: Shelf) -> None:
    """A task names the version that it runs: it must not mean two documents."""
    for text in "abc":
        shelf.put(text)
    shelf.remove("3")
    assert shelf.put("d").workflow.version == "4"
    shelf.remove()
    for known in (shelf.kernel.state, replay(shelf.records), drawn_again(shelf)):
        after = Shelf(state=known)
        assert after.put("e").workflow.version == "5"
        assert after.put("e", name="another").workflow.version == "1"
        assert after.put("e", owner="team/owner").workflow.version == "1"


def drawn_again(shelf: Shelf) -> State:
    return restore(through_a_checkpoint(Snapshot(shelf.kernel.state).pieces()))


def test_of_many_removed_workflows_the_oldest_share_one_number(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbering, "GONE_MAX", 2)
    for name, versions in (("x", 3), ("y", 2), ("z", 1), ("release", 1)):
        for text in range(versions):
            shelf.put(str(text), name=name)
        shelf.remove(name=name)
    assert durable(drawn_again(shelf)) == durable(replay(shelf.records)) == durable(shelf.kernel.state)
    after = Shelf(state=drawn_again(shelf))
    found = [after.put("n", name=name).workflow.version for name in ("x", "y", "z", "release", "new")]
    assert found == ["4", "4", "2", "5", "4"], "those of which nothing is known begin above x and y"


def test_behind_the_largest_number_a_version_must_be_named(shelf: Shelf) -> None:
    """A number of more digits was no number to the next put, which then gave it again."""
    shelf.put("a", "9" * 15)
    with pytest.raises(Conflict, match="no number is behind it") as refused:
        shelf.put("b")
    assert "--version" in refused.value.hint
    assert shelf.put("b", "next").workflow.version == "next"


def test_the_owner_pays_until_the_version_is_removed(shelf: Shelf) -> None:
    charges = shelf.kernel.state.charges
    shelf.put("aa")
    assert charges.of(OWNER) == WORKFLOW_BYTES + 4
    with pytest.raises(OverBudget):
        shelf.put("b" * 100, budget=WORKFLOW_BYTES + 100)
    shelf.put("b", budget=10_000)
    shelf.remove()
    assert charges.of(OWNER) == 0


def test_there_are_so_many_versions_names_and_bytes_and_no_more(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("VERSIONS_MAX", 3), ("NAMES_MAX", 2), ("NAMESPACE_BYTES_MAX", 200)):
        monkeypatch.setattr(f"relaymesh.kernel.tasks.storing.{name}", most)
    for text in "abc":
        shelf.put(text)
    for text, name, words in (
        ("d", "release", "3 versions already"),
        ("e" * 190, "other", "would have 201 bytes"),
    ):
        with pytest.raises(OverBudget, match=words) as refused:
            shelf.put(text, name=name)
        assert "relaymesh workflow remove" in refused.value.hint
    shelf.put("f", name="other")
    with pytest.raises(OverBudget, match="2 workflows already"):
        shelf.put("g", name="third")
    shelf.put("g", name="third", owner="team/owner")
    assert shelf.put("c").duplicate
    assert stored.VERSIONS_MAX == 100


def test_a_replay_and_a_checkpoint_give_them_back(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 600)
    for text in ("a", "b" * 200, "c"):
        shelf.put(text)
        shelf.put(text, name="other", owner="team/owner")
    shelf.remove("1")
    state = shelf.kernel.state
    assert durable(replay(shelf.records)) == durable(state)
    drawn = list(Snapshot(state).pieces())
    assert len([piece for piece in drawn if isinstance(piece, pieces.WorkflowsPiece)]) > 2
    restored = restore(through_a_checkpoint(drawn))
    assert durable(restored) == durable(state)
    assert restored.charges.of(OWNER) == 0
    restored.go_live()
    assert restored.charges.of(OWNER) == state.charges.of(OWNER) > 0
    woken = Shelf(state=restored)
    assert woken.show() == ("3", b'"c"')
    assert woken.put("d").workflow.version == "4"


def test_a_snapshot_shows_what_there_was_when_it_was_taken(shelf: Shelf) -> None:
    shelf.put("a")
    before = durable(shelf.kernel.state)
    snapshot = Snapshot(shelf.kernel.state)
    shelf.put("b")
    shelf.remove("1")
    assert durable(restore(through_a_checkpoint(snapshot.pieces()))) == before


def test_a_removal_behind_a_record_that_is_set_aside_changes_nothing() -> None:
    state = State()
    put = WorkflowPut(1, 1, "default", "release", "2", b"{}", b"", OWNER)
    gaps.leave_out(state, 1, None, None)
    for record in (put, WorkflowRemoved(1, 2, "default", "release", ["1"]), put):
        list(gaps.apply_behind_gap(state, record))
    assert [each.version for each in state.workflows] == ["2"]
    assert (state.workflows.names("default"), state.workflows.bytes_of("default")) == (1, 2)
    list(gaps.apply_behind_gap(state, WorkflowRemoved(1, 3, "default", "gone", ["1"])))
    assert state.sequence == 5


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "a b"},
        {"name": "a/b"},
        {"name": "a@1"},
        {"name": "x" * 129},
        {"name": "\ud800"},
        {"name": "a\x00"},
        {"name": b"a"},
        {"name": 7},
        {"version": "a b"},
        {"version": "@"},
        {"version": "-1"},
        {"version": "1\n"},
        {"version": "x" * 129},
        {"version": 1},
        {"version": 1.0},
        {"version": None},
        {"version": b"1"},
        {"document": "{}"},
        {"document": None},
        {"digest": "x"},
        {"digest": b"x" * 65},
        {"owner": ""},
        {"owner": 3},
        {"budget": -1},
        {"budget": 1.0},
        {"budget": float("nan")},
    ],
)
def test_a_bad_value_is_refused_when_the_command_is_built(fields: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "name": "a",
        "version": "1",
        "document": b"{}",
        "digest": b"x",
        "owner": OWNER,
        "budget": 0,
    }
    PutVersion(**good)
    with pytest.raises(InvalidValue):
        PutVersion(**(good | fields))
    named = {name: value for name, value in fields.items() if name in ("name", "version")}
    if named:
        for kind in (RemoveVersions, ShowWorkflow):
            with pytest.raises(InvalidValue):
                kind(**({"namespace": "default", "name": "a", "version": "1"} | named))


def test_a_document_that_is_too_large_is_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        PutVersion("a", "1", b"x" * 1_048_577, b"", OWNER)


@pytest.mark.parametrize("fields", [{"limit": -1}, {"limit": 1.5}, {"before": -1}, {"name": ""}, {"name": 1}])
def test_a_bad_list_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(MeshError):
        ListWorkflows("default", **fields)
