"""Schedules: a tick runs once or waits for a reason, and what is set survives a restart."""

from __future__ import annotations

from typing import Any

import pytest

from relaymesh.errors import Conflict, InvalidValue, MeshError, NotFound, OverBudget, UnknownRecipient
from relaymesh.kernel import gaps
from relaymesh.kernel.commands import OpenMailbox, Send, Stop
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.query import DueSchedules, ListSchedules, ShowSchedule
from relaymesh.kernel.records import (
    Accepted,
    ScheduleFired,
    SchedulePaused,
    ScheduleRemoved,
    ScheduleSet,
    TaskSubmitted,
)
from relaymesh.kernel.schedules import pieces, schedules
from relaymesh.kernel.schedules.commands import (
    Fired,
    FireSchedule,
    PauseSchedule,
    RemoveSchedule,
    SetSchedule,
)
from relaymesh.kernel.schedules.firing import LATE_MS
from relaymesh.kernel.schedules.schedule import SCHEDULE_BYTES, Work
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.kernel.snapshot import Snapshot, restore
from relaymesh.kernel.state import State
from relaymesh.kernel.tasks.commands import Submit
from relaymesh.kernel.tasks.plan import Plan, StepPlan
from tests.kernel.driver import MINUTE, NOON, SECOND, Driver, replay, through_a_checkpoint
from tests.kernel.durable import durable

OWNER, HOME, BOX = "default/owner", "default", "default/coder"
PERIOD = 5 * MINUTE
FIRST = NOON // PERIOD * PERIOD + PERIOD
MESSAGE = Work(to=BOX, message=Envelope("", OWNER, b"1"))
PLAN = Plan(name="w", steps=(StepPlan(name="one", mailbox=BOX),))


class Calendar(Driver):
    """Plays the shell, for schedules with a tick every five minutes."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.do(OpenMailbox(BOX, MailboxSettings(capacity=3)))

    def set(self, name: str = "s", work: Work = MESSAGE, **fields: Any) -> Any:
        next_at = fields.pop("next_at", (self.now // PERIOD + 1) * PERIOD)
        owner = fields.pop("owner", OWNER)
        return self.do(SetSchedule(name, "*/5 * * * *", "UTC", work, owner, next_at, **fields)).result

    def command(self, name: str = "s", **changed: Any) -> FireSchedule:
        kept = self.kept(name)
        tick_at = max(kept.next_at, self.now // PERIOD * PERIOD)
        fields: dict[str, Any] = {
            "sequence": kept.sequence,
            "due_at": kept.next_at,
            "tick_at": tick_at,
            "next_at": tick_at + PERIOD,
            "passed": (tick_at - kept.next_at) // PERIOD,
            "work": self.work(kept.work),
        }
        return FireSchedule(HOME, name, **{**fields, **changed})

    def work(self, work: Work) -> Any:
        id = f"run-{len(self.records)}"
        if work.message is None:
            return Submit(id, PLAN, b"null", id, b"digest", OWNER)
        return Send([(work.to, [Envelope(id, OWNER, b"1")])], minted=True)

    def fire(self, name: str = "s", **changed: Any) -> Fired:
        result: Fired = self.do(self.command(name, **changed)).result
        return result

    def kept(self, name: str = "s") -> Any:
        found = self.kernel.look(ShowSchedule(HOME, name))
        assert found is not None
        return found.schedule

    def refusal(self, name: str = "s") -> Any:
        found = self.kernel.look(ShowSchedule(HOME, name))
        assert found is not None
        return found.refusal

    def due(self) -> list[str]:
        return [each.name for each in self.kernel.look(DueSchedules(self.now, 1_000))]

    def fired(self) -> list[ScheduleFired]:
        return [each for each in self.records if isinstance(each, ScheduleFired)]

    def full(self) -> None:
        envelopes = [Envelope(f"filler-{self.now}-{i}", OWNER, b"0") for i in range(3)]
        self.do(Send([(BOX, envelopes)]))


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


# -- a tick


def test_a_tick_and_its_message_are_one_step(calendar: Calendar) -> None:
    calendar.set()
    calendar.now = FIRST
    assert calendar.due() == ["s"]
    step = calendar.do(calendar.command())
    assert [type(each) for each in step.records] == [Accepted, ScheduleFired]
    accepted, fired = step.records
    assert isinstance(accepted, Accepted)
    assert isinstance(fired, ScheduleFired)
    assert (fired.tick_at, fired.next_at, fired.run) == (
        FIRST,
        FIRST + PERIOD,
        accepted.envelopes[0].id,
    )
    assert (calendar.kept().runs, calendar.kept().last_run, calendar.due()) == (1, fired.run, [])


def test_a_tick_and_its_task_are_one_step(calendar: Calendar) -> None:
    calendar.set(work=Work("w", b"{}"))
    calendar.now = FIRST
    step = calendar.do(calendar.command())
    assert [type(each) for each in step.records] == [TaskSubmitted, ScheduleFired]
    submitted, fired = step.records
    assert isinstance(submitted, TaskSubmitted)
    assert isinstance(fired, ScheduleFired)
    assert step.result.run == submitted.task == fired.run
    assert step.synced == calendar.kernel.state.sequence, "nothing is told of it before it is durable"


def test_the_second_of_two_fires_of_one_tick_does_nothing(calendar: Calendar) -> None:
    calendar.set()
    calendar.now = FIRST
    again = calendar.command()
    calendar.fire()
    before = calendar.kernel.state.sequence
    assert calendar.do(again).result == Fired()
    assert calendar.kernel.state.sequence == before


@pytest.mark.parametrize(
    "changed",
    [
        {"sequence": 0},
        {"due_at": FIRST - PERIOD},
        {"tick_at": FIRST + PERIOD, "next_at": FIRST + 2 * PERIOD},
        {"due_at": FIRST - 1},
    ],
    ids=["set again", "another tick", "a tick to come", "no tick"],
)
def test_a_fire_for_anything_else_than_the_tick_that_is_due_does_nothing(
    calendar: Calendar, changed: dict[str, Any]
) -> None:
    calendar.set()
    calendar.now = FIRST
    assert calendar.fire(**changed) == Fired()
    assert calendar.fired() == []


def test_a_tick_does_not_run_early(calendar: Calendar) -> None:
    calendar.set()
    calendar.now = FIRST - 1
    assert calendar.due() == []
    assert calendar.fire() == Fired()
    assert calendar.kernel.next_event_at == FIRST


def test_nothing_runs_after_the_stop(calendar: Calendar) -> None:
    calendar.set()
    calendar.now = FIRST
    calendar.do(Stop())
    assert calendar.fire() == Fired()


# -- missed ticks


def test_ticks_that_passed_get_one_run_together(calendar: Calendar) -> None:
    calendar.set()
    calendar.now = FIRST + 3 * PERIOD + 2 * MINUTE
    assert calendar.fire().run
    kept = calendar.kept()
    assert (kept.runs, kept.skipped, kept.last_tick_at, kept.next_at) == (
        1, 3, FIRST + 3 * PERIOD, FIRST + 4 * PERIOD,
    )  # fmt: skip
    assert "passed over since" in kept.reason
    calendar.now = FIRST + 4 * PERIOD
    assert calendar.fire().run
    assert calendar.kept().reason == "", "the next tick came in time"


def test_ticks_that_passed_get_no_run_if_none_is_wanted(calendar: Calendar) -> None:
    calendar.set(missed="none")
    calendar.now = FIRST + 3 * PERIOD + LATE_MS + 1
    assert calendar.fire() == Fired(skipped=True)
    kept = calendar.kept()
    assert (kept.runs, kept.skipped, kept.next_at) == (0, 4, FIRST + 4 * PERIOD)
    assert kept.reason.startswith("missed: ")


def test_a_tick_that_is_a_little_late_is_not_missed(calendar: Calendar) -> None:
    calendar.set(missed="none")
    calendar.now = FIRST + 2 * PERIOD + LATE_MS
    assert calendar.fire().run
    assert (calendar.kept().runs, calendar.kept().skipped) == (1, 2)


# -- refusals


def test_a_tick_that_is_refused_waits_and_says_why(calendar: Calendar) -> None:
    calendar.set()
    calendar.full()
    calendar.now = FIRST
    fired = calendar.fire()
    assert fired.blocked.startswith("MAILBOX_FULL: ")
    assert calendar.fired() == [], "a refusal writes nothing"
    assert (calendar.refusal().reason, calendar.refusal().tries) == (fired.blocked, 1)
    assert calendar.kernel.next_event_at <= FIRST + SECOND
    assert calendar.due() == []
    waits = []
    for _ in range(7):
        calendar.now = calendar.refusal().retry_at
        assert calendar.due() == ["s"]
        calendar.fire()
        waits.append(calendar.refusal().retry_at - calendar.now)
    assert waits == [2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]
    calendar.do(OpenMailbox(BOX, MailboxSettings(capacity=9)))
    calendar.now = calendar.refusal().retry_at
    assert calendar.fire().run
    assert (calendar.refusal(), calendar.kept().runs, calendar.kept().skipped) == (None, 1, 0)


def test_what_is_in_the_way_in_the_shell_is_told_too(calendar: Calendar) -> None:
    calendar.set(work=Work("w", b"{}"))
    calendar.now = FIRST
    assert calendar.fire(work=None, obstacle="NOT_FOUND: no workflow").blocked == "NOT_FOUND: no workflow"
    assert calendar.refusal().reason == "NOT_FOUND: no workflow"


def test_a_tick_that_is_overtaken_counts_as_passed(calendar: Calendar) -> None:
    calendar.set(missed="none")
    calendar.full()
    calendar.now = FIRST
    calendar.fire()
    calendar.now = FIRST + PERIOD + SECOND
    calendar.do(OpenMailbox(BOX, MailboxSettings(capacity=9)))
    assert calendar.fire().run
    kept = calendar.kept()
    assert (kept.runs, kept.skipped, kept.last_tick_at) == (1, 1, FIRST + PERIOD)
    assert "MAILBOX_FULL" in kept.reason


def test_a_tick_that_was_tried_in_time_is_not_missed(calendar: Calendar) -> None:
    calendar.set(missed="none")
    calendar.full()
    calendar.now = FIRST
    calendar.fire()
    calendar.now = FIRST + 4 * MINUTE
    calendar.do(OpenMailbox(BOX, MailboxSettings(capacity=9)))
    assert calendar.fire().run


def test_a_calendar_that_cannot_be_read_keeps_its_tick(calendar: Calendar) -> None:
    calendar.set(missed="none")
    calendar.now = FIRST + 4 * MINUTE
    assert calendar.fire(work=None, next_at=0, obstacle="no time zone").blocked == "no time zone"
    calendar.now += 30 * SECOND
    assert calendar.fire().skipped, "it was not tried in time"


# -- setting, pausing, removing


def test_the_same_fields_again_change_nothing(calendar: Calendar) -> None:
    assert not calendar.set().duplicate
    calendar.now += 10 * MINUTE
    again = calendar.set()
    assert again.duplicate
    assert again.schedule.schedule.next_at == FIRST, "it still waits for the tick that is due"
    assert len([each for each in calendar.records if isinstance(each, ScheduleSet)]) == 1


def test_other_fields_need_a_word_and_keep_the_history(calendar: Calendar) -> None:
    calendar.set()
    calendar.now = FIRST
    calendar.fire()
    calendar.do(PauseSchedule(HOME, "s", True))
    with pytest.raises(Conflict) as refused:
        calendar.set(missed="none")
    assert "replace" in refused.value.hint
    kept = calendar.set(missed="none", replace=True).schedule.schedule
    assert (kept.missed, kept.runs, kept.paused) == ("none", 1, True)


def test_a_paused_schedule_is_never_due(calendar: Calendar) -> None:
    calendar.set()
    calendar.do(PauseSchedule(HOME, "s", True))
    assert calendar.kernel.next_event_at == NEVER
    calendar.now = FIRST + PERIOD
    assert calendar.due() == []
    assert calendar.fire() == Fired()
    resumed = FIRST + 2 * PERIOD
    calendar.do(PauseSchedule(HOME, "s", False, resumed, calendar.kept().sequence))
    assert (calendar.kernel.next_event_at, calendar.kept().skipped) == (resumed, 0)
    calendar.now = resumed
    assert calendar.fire().run


def test_pausing_and_resuming_twice_writes_once(calendar: Calendar) -> None:
    calendar.set()
    for paused in (False, True, True, False, False):
        calendar.do(PauseSchedule(HOME, "s", paused, FIRST, calendar.kept().sequence))
    assert [each.paused for each in calendar.records if isinstance(each, SchedulePaused)] == [True, False]


def test_a_resume_for_a_schedule_that_changed_meanwhile_is_refused(calendar: Calendar) -> None:
    calendar.set()
    calendar.do(PauseSchedule(HOME, "s", True))
    with pytest.raises(Conflict, match="same time"):
        calendar.do(PauseSchedule(HOME, "s", False, FIRST, 1))
    with pytest.raises(NotFound, match="'t'"):
        calendar.do(PauseSchedule(HOME, "t", True))


def test_a_removed_schedule_is_gone_and_what_it_began_is_not(calendar: Calendar) -> None:
    calendar.set()
    calendar.now = FIRST
    calendar.fire()
    assert calendar.do(RemoveSchedule(HOME, "s")).result is True
    assert calendar.do(RemoveSchedule(HOME, "s")).result is False
    assert calendar.kernel.look(ShowSchedule(HOME, "s")) is None
    assert calendar.kernel.next_event_at > FIRST + PERIOD, "no timer is left but that of the message"
    assert len(calendar.kernel.state.mailboxes[BOX].entries) == 1


def test_an_unknown_recipient_is_refused_at_once(calendar: Calendar) -> None:
    with pytest.raises(UnknownRecipient):
        calendar.set(work=Work(to="default/nobody", message=Envelope("", OWNER, b"1")))


def test_lists_are_by_name_and_hold_no_work(calendar: Calendar) -> None:
    for name in ("b", "c", "a"):
        calendar.set(name)
    calendar.set("a", owner="other/owner")
    views = calendar.kernel.look(ListSchedules())
    names = [(view.schedule.namespace, view.schedule.name) for view in views]
    assert names == [("default", "a"), ("default", "b"), ("default", "c"), ("other", "a")]
    assert all(view.schedule.work.message is None for view in views)
    page = calendar.kernel.look(ListSchedules("default", 2, "default/a"))
    assert [view.schedule.name for view in page] == ["b", "c"]
    assert calendar.kernel.look(ListSchedules("nowhere")) == []


# -- bounds


def test_a_namespace_has_so_many_schedules(calendar: Calendar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaymesh.kernel.schedules.setting.SCHEDULES_MAX", 2)
    calendar.set("a")
    calendar.set("b")
    with pytest.raises(OverBudget, match="2 schedules"):
        calendar.set("c")
    calendar.set("b", missed="none", replace=True)
    calendar.set("c", owner="other/owner")


def test_a_namespace_has_so_many_bytes(calendar: Calendar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaymesh.kernel.schedules.setting.NAMESPACE_BYTES_MAX", 100)
    calendar.set("a", Work("w", b"x" * 60, b""))
    with pytest.raises(OverBudget, match="bytes"):
        calendar.set("b", Work("w", b"x" * 60, b""))
    calendar.set("a", Work("w", b"y" * 100, b""), replace=True)


def test_its_owner_pays_for_it(calendar: Calendar) -> None:
    charges = calendar.kernel.state.charges
    calendar.set("a", Work("w", b"x" * 100, b"22"), budget=2_000)
    assert charges.of(OWNER) == SCHEDULE_BYTES + 102
    with pytest.raises(OverBudget):
        calendar.set("b", budget=2_000)
    calendar.do(RemoveSchedule(HOME, "a"))
    assert charges.of(OWNER) == 0


def test_an_idle_schedule_costs_one_place_in_a_heap(
    calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "SWEEP_MIN", 16)
    kept = calendar.kernel.state.schedules
    kept._sweep_at = 16
    for number in range(200):
        calendar.set("s", missed=("one", "none")[number % 2], replace=True)
    assert len(kept._heap) < 40
    assert (kept.next, calendar.due()) == (FIRST, [])


# -- restarts


def played() -> Calendar:
    calendar = Calendar()
    for name in ("a", "b", "c", "d"):
        calendar.set(name, missed="none" if name == "b" else "one")
    calendar.set("w", Work("w@3", b"{}", b"7"))
    calendar.do(PauseSchedule(HOME, "c", True))
    calendar.do(RemoveSchedule(HOME, "d"))
    calendar.now = FIRST + 2 * MINUTE
    for name in ("a", "b", "w"):
        calendar.fire(name)
    return calendar


def test_a_replay_and_a_checkpoint_give_the_same_schedules() -> None:
    calendar = played()
    live = durable(calendar.kernel.state)
    assert durable(replay(calendar.records)) == live
    snapshot = Snapshot(calendar.kernel.state)
    calendar.now += PERIOD
    calendar.fire("a")  # a snapshot shows what was there when it was taken
    assert durable(restore(through_a_checkpoint(snapshot.pieces())))["schedules"] == live["schedules"]


def test_after_a_restart_the_timers_are_those_of_before() -> None:
    calendar = played()
    state = replay(calendar.records)
    state.go_live()
    assert state.schedules.next == FIRST + PERIOD
    assert {each.name for each in state.schedules.due(FIRST + PERIOD, 10)} == {"a", "b", "w"}
    assert state.charges.of(OWNER) == calendar.kernel.state.charges.of(OWNER)


def test_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_SIZE", 2)
    calendar = played()
    kept = list(calendar.kernel.state.schedules)
    assert [len(piece.schedules) for piece in pieces.schedule_pieces(kept)] == [2, 2]
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1)
    assert [len(piece.schedules) for piece in pieces.schedule_pieces(kept)] == [1, 1, 1, 1]


def test_records_behind_a_gap_find_no_schedule_and_do_no_harm() -> None:
    state = State()
    for record in (
        ScheduleFired(1, 1, HOME, "s", 1, 2, "run"),
        SchedulePaused(1, 1, HOME, "s", True),
        ScheduleRemoved(1, 1, HOME, "s"),
    ):
        list(gaps.apply_behind_gap(state, record))
    assert (list(state.schedules), state.sequence) == ([], 3)


# -- bad values


def _any(value: Any) -> Any:
    """A value of another type than its place takes."""
    return value


GOOD: dict[str, Any] = {
    "name": "s", "cron": "* * * * *", "tz": "UTC", "work": MESSAGE, "owner": OWNER, "next_at": 1
}  # fmt: skip
BAD: dict[str, list[Any]] = {
    "name": ["", "a b", "a/b", "-a", "x" * 129, None, 7, b"s", "\ud800"],
    "cron": ["", "x" * 129, None, 7, b"* * * * *"],
    "tz": ["", "x" * 65, None, 7],
    "work": [
        None, {}, "w", Work(), Work("w", to=BOX), Work(to=BOX), Work("w" * 258), Work(_any(7)),
        Work("w", _any("{}")), Work("w", b"{}", _any(None)), Work("w", message=Envelope("", OWNER, b"1")),
        Work(to=BOX, message=_any("{}")),
        Work("w", b"x" * 1_048_577), Work("w", b"", b"x" * 1_048_577),
    ],
    "owner": ["", "x" * 513, None, 7],
    "next_at": [-1, 1 << 60, 1.5, "1", None, True],
    "missed": ["", "all", None, 1, "ONE"],
    "replace": [None, 1, "yes"],
    "budget": [-1, 1.5, None],
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in BAD.items() for value in values]
)
def test_a_bad_value_makes_no_command(field: str, value: Any) -> None:
    with pytest.raises(MeshError) as refused:
        SetSchedule(**{**GOOD, field: value})
    assert refused.value.hint


@pytest.mark.parametrize(
    "changed",
    [
        {"tick_at": 4}, {"next_at": 5}, {"passed": -1}, {"due_at": "5"}, {"sequence": None}, {"name": "a b"},
        {"namespace": ""}, {"work": None}, {"next_at": 0}, {"obstacle": 7},
    ],
)  # fmt: skip
def test_a_bad_fire_is_no_command(changed: dict[str, Any]) -> None:
    good: dict[str, Any] = {
        "namespace": HOME, "name": "s", "sequence": 1, "due_at": 5, "tick_at": 5, "next_at": 6,
        "work": Send([]),
    }  # fmt: skip
    FireSchedule(**good)
    with pytest.raises(InvalidValue):
        FireSchedule(**{**good, **changed})


@pytest.mark.parametrize("command", [RemoveSchedule, ShowSchedule])
@pytest.mark.parametrize("given", [("", "s"), (None, "s"), (HOME, ""), (HOME, "a b"), (HOME, None), (7, 7)])
def test_a_bad_name_is_no_command(command: Any, given: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidValue):
        command(*given)
    with pytest.raises(InvalidValue):
        PauseSchedule(*given, True)
