"""A crash anywhere loses nothing: replayed or restored, the board is what it was, and goes on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from relaymesh.kernel import snapshot
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.snapshot import AnyPiece, Snapshot, restore
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks import pieces
from relaymesh.kernel.tasks.task import Task
from tests.kernel.driver import replay, through_a_checkpoint
from tests.kernel.durable import durable, task_of
from tests.kernel.tasks.office import Office, office, plan, step
from tests.kernel.tasks.scene import Scene


def derived(task: Task) -> Task:
    """A copy whose derived values are worked out anew."""
    twin = copy.copy(task)
    twin.steps = [msgspec.structs.replace(each) for each in task.steps]
    twin.derive()
    return twin


def go_on(scene: Scene, acts: int) -> None:
    for _ in range(acts):
        if scene.is_over:
            return
        scene.something_happens()


@pytest.mark.parametrize("seed", range(40))
def test_a_replay_is_equal_after_every_kernel_step(seed: int) -> None:
    scene = Scene(seed, most=20)
    shadow = replay(scene.records)
    seen = len(scene.records)

    def compare() -> None:
        nonlocal seen
        new: list[AnyRecord] = scene.records[seen:]
        seen = len(scene.records)
        assert durable(replay(new, shadow)) == durable(scene.kernel.state)

    scene.after = compare
    go_on(scene, 100)
    scene.drive_to_the_end()
    board = scene.kernel.state.board
    assert [board.tasks, board.links, board.letters, board.by_token, board.shapes] == [{}] * 5


@pytest.mark.parametrize("seed", range(40))
def test_what_is_derived_is_always_what_follows_from_the_steps(seed: int) -> None:
    scene = Scene(seed, most=20)

    def compare() -> None:
        for task in scene.kernel.state.board.tasks.values():
            assert task_of(task) == task_of(derived(task))

    scene.after = compare
    go_on(scene, 100)
    scene.drive_to_the_end()


class Drawing:
    """A snapshot of which one piece is drawn after each kernel step."""

    def __init__(self, state: State) -> None:
        self.expected = durable(state)
        self.snapshot = Snapshot(state)
        self._drawing: Iterator[AnyPiece] = self.snapshot.pieces()
        self._drawn: list[AnyPiece] = []

    def draw(self) -> None:
        piece = next(self._drawing, None)
        if piece is not None:
            self._drawn.append(piece)

    def check(self) -> State:
        self._drawn += self._drawing
        self.snapshot.close()
        restored = restore(through_a_checkpoint(self._drawn))
        assert durable(restored) == self.expected
        return restored


@pytest.mark.parametrize("seed", range(60))
def test_a_snapshot_is_of_its_moment_however_slowly_it_is_drawn(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_SIZE", 2)
    monkeypatch.setattr(snapshot, "PIECE_SIZE", 2)
    scene = Scene(seed, most=20)
    go_on(scene, scene.dice.randint(0, 60))
    at = len(scene.records)
    drawing = Drawing(scene.kernel.state)
    before = scene.kernel
    scene.after = drawing.draw
    while scene.kernel is before and not scene.is_over:
        scene.something_happens()
        if len(scene.records) > at + 60:
            break
    restored = drawing.check()
    assert durable(replay(scene.records[at:], restored)) == durable(replay(scene.records))


@pytest.mark.parametrize("seed", range(12))
def test_after_a_crash_at_any_kernel_step_the_task_is_driven_to_its_end(seed: int) -> None:
    """By replay, and from a snapshot that was taken just then."""
    scene = Scene(seed, most=8)
    cuts: list[tuple[int, list[AnyPiece], int]] = []

    def note() -> None:
        taken = Snapshot(scene.kernel.state)
        cuts.append((len(scene.records), through_a_checkpoint(taken.pieces()), scene.now))
        taken.close()

    scene.after = note
    go_on(scene, 40)
    for count, kept, now in cuts[:: max(1, len(cuts) // 25)]:
        for state in (replay(scene.records[:count]), restore(kept)):
            finish_in(state, scene, now)


def finish_in(state: State, scene: Scene, now: int) -> None:
    desk = Office(state=state, now=now, items=scene.items, skips=scene.skips)
    desk.stored = scene.stored
    for task in list(desk.kernel.state.board.tasks):
        desk.move_on(task)
    for _ in range(300):
        if not desk.kernel.state.board.tasks:
            break
        links = desk.kernel.state.board.letters
        open_letters = {name for name, link in links.items() if not link.closed}
        waiting = [
            letter for letter in desk.letters if (letter.mailbox, letter.dead_sequence) in open_letters
        ]
        if waiting:
            desk.redrive(*waiting)
        desk.end_waits()
        for mailbox in ("default/worker", "default/helper"):
            for row in desk.receive(mailbox, 100):
                if row.sequence in desk.kernel.state.board.links:
                    desk.finish(row.token)
        desk.pass_time(120_000)
    board = desk.kernel.state.board
    assert [board.tasks, board.links, board.letters, board.by_token, board.questions] == [{}] * 5


@pytest.mark.parametrize("seed", range(60))
def test_charges_return_to_zero_when_all_is_over(seed: int) -> None:
    scene = Scene(seed)
    go_on(scene, 100)
    owner = scene.kernel.state.charges.of("default/owner")
    assert scene.is_over == (owner == 0)
    scene.drive_to_the_end()
    assert scene.kernel.state.charges.of("default/owner") == 0


def test_a_restart_charges_what_was_charged_before() -> None:
    desk = office()
    desk.items["each"] = [b"x" * 1_000] * 300
    desk.submit(plan(step("each", for_each="items")))
    charged = desk.kernel.state.charges.of("default/owner")
    desk.restart()
    assert desk.kernel.state.charges.of("default/owner") == charged > 200_000


def test_a_large_task_that_changes_while_its_pieces_are_drawn() -> None:
    desk = office()
    desk.items["each"] = [b"%d" % i for i in range(3_000)]
    desk.submit(plan(step("each", for_each="items")))
    taken = desk.take(10)
    expected = durable(desk.kernel.state)
    kept = Snapshot(desk.kernel.state)
    drawing = kept.pieces()
    drawn: list[Any] = []
    while len([piece for piece in drawn if isinstance(piece, pieces.StepsPiece)]) < 2:
        drawn.append(next(drawing))
    for token in taken.values():
        desk.finish(token, b'"changed"')
    drawn += drawing
    kept.close()
    assert durable(restore(through_a_checkpoint(drawn))) == expected
