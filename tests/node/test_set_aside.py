"""Records that cannot be read: a start names them, `set-aside` passes over them, no other message is lost."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from relaymesh.cli.main import main
from relaymesh.errors import AsideInvalid, RecordUnreadable
from relaymesh.journal import Frame, read_frames, verify
from relaymesh.journal.aside import Aside, AsideLine, line_for, read_aside, write_aside
from relaymesh.kernel.commands import Ack, RegisterAgent
from relaymesh.kernel.pending import DELAYED, LEASED
from relaymesh.kernel.records import AnyRecord
from relaymesh.kernel.schedules.commands import SetSchedule
from relaymesh.kernel.schedules.schedule import Work
from relaymesh.kernel.snapshot import Snapshot, restore
from relaymesh.kernel.state import State
from relaymesh.node.disk import RealDisk
from relaymesh.node.opening import first_state, replay
from relaymesh.node.settings import MeshSettings
from relaymesh.sdk.mesh import Mesh
from relaymesh.wire.records import RECORDS_BY_OPERATION, Unreadable
from tests.journal.stranger import sequences_set_aside
from tests.journal.tampering import Field, make_unreadable, records_of, segments_of, tamper

Named = tuple[str, int]


def write_journal(path: Path) -> None:
    """Every operation, and messages that in the end wait, are leased, delayed, dead and settled."""
    with Mesh(path) as mesh:
        planner = mesh.agent("planner")
        coder = mesh.agent("coder", backoff_ms_base=1, backoff_jitter=0.0, max_retries=1)
        audit = mesh.subscribe("order.*", "audit")
        mesh.subscribe("order.*", "gone")
        for i in range(6):
            planner.send("coder", {"n": i}, id=f"m-{i}", task="t" if i % 2 else None)
        planner.send_many([{"to": "coder", "content": i} for i in range(6)])
        planner.send("coder", "later", id="later", delay_ms=3_600_000)
        planner.send("coder", "forced", id="forced", delay_ms=3_600_000)
        mesh.publish("order.new", {"o": 1}, id="o-1")
        mesh.publish("order.new", {"o": 2}, id="o-2")
        mesh.unsubscribe("order.*", "gone")
        mesh.reprioritise("coder", 5, ["m-5"])
        coder.receive(timeout=5).ack()
        coder.receive(timeout=5).nack("again")
        coder.receive(timeout=5).nack("until", until=9_999_999_999)
        coder.receive(timeout=5).nack("never", retryable=False)
        coder.receive(timeout=5).drop()
        mesh.redrive(mesh.dead_letters())
        coder.receive(timeout=5).nack("no", retryable=False)
        mesh.purge_dead_letters(mesh.dead_letters())
        coder.receive(timeout=5).nack("no", retryable=False)
        audit.receive(timeout=5).ack()
        mesh.ack_many(coder.receive_many(3))
        mesh.force_deliver_delayed("coder")
        planner.send("coder", "later", id="later-2", delay_ms=3_600_000)
        write_tasks(mesh)
    with Mesh(path) as mesh:
        mesh.agent("coder").receive_many(2, timeout=5)


def write_undone(mesh: Mesh) -> None:
    """One that asks, listens, uses its budget, gets another one, fails, undoes and tells its outcome."""
    clerk, boss = mesh.agent("clerk"), mesh.agent("boss")
    steps = {
        "make": {"agent": "clerk", "compensate": {}},
        "beside": {"agent": "clerk"},
        "ask": {"ask": "boss", "question": "well?", "needs": ["make", "beside"]},
        "go": {"signal": "go", "needs": ["ask"]},
        "bad": {"agent": "clerk", "needs": ["go"]},
    }
    document = {"workflow": "undone", "budget": {"cost_usd": 1}, "steps": steps}
    task = mesh.submit(document, reply_to="boss")
    clerk.receive(timeout=5).finish(1, usage={"cost_usd": 2})
    task.set_budget(cost_usd=9)
    clerk.receive(timeout=5).finish(2)
    boss.answer(boss.receive(timeout=5), "yes")
    task.signal("go", 1)
    clerk.receive(timeout=5).fail("no")
    clerk.receive(timeout=5).finish()
    boss.receive(timeout=5).ack()


def write_tasks(mesh: Mesh) -> None:
    """One that ended, one that was cancelled, and one that waits."""
    worker = mesh.agent("worker")
    steps = {
        "first": {"agent": "worker"},
        "each": {"agent": "worker", "for_each": "${{ input.items }}", "needs": ["first"]},
        "last": {"agent": "worker", "needs": ["each"]},
    }
    work = {"workflow": "work", "steps": steps}
    done = mesh.submit(work, {"items": [1, 2]})
    for _ in range(4):
        worker.receive(timeout=5).finish(7)
    assert done.result(5) == 7
    mesh.submit(work, {"items": [3]}).cancel("enough")
    write_undone(mesh)
    mesh.submit(work, {"items": [4, 5]})
    mesh.put_workflow(work, "1")
    mesh.put_workflow(work, "2")
    mesh.remove_workflow("work", "1")
    mesh._session.execute(
        SetSchedule("nightly", "0 7 * * *", "UTC", Work("work@2", input=b'{"items": []}'), "default/mesh", 1)
    )
    while not mesh.schedule("nightly").runs:
        time.sleep(0.01)  # housekeeping runs what is due
    mesh.pause_schedule("nightly")
    mesh.put_schedule("hourly", "0 * * * *", to="worker")
    mesh.remove_schedule("hourly")
    worker.receive(timeout=5).finish(8)
    mesh._session.execute(RegisterAgent("default/worker", settles=False))
    taken = worker.receive(timeout=5)
    assert mesh._session.execute(Ack([taken._token], taken_ms=90_000)) == []


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "data"
    write_journal(path)
    for checkpoint in (path / "checkpoints").glob("*.rmc"):
        checkpoint.unlink()  # so that a start reads every record
    return path


def copy_with_bad(journal: Path, path: Path, sequence: int, field: Field = "time") -> Path:
    shutil.copytree(journal, path)
    make_unreadable(path, sequence, field)
    return path


def first_of(journal: Path, name: str) -> int:
    return next(at for at, values, _ in records_of(journal) if _kind(values) == name)


def _kind(values: list[object]) -> str:
    operation = values[0]
    assert isinstance(operation, int)
    return RECORDS_BY_OPERATION[operation].__name__


def state_of(path: Path) -> State:
    state = first_state()
    disk = RealDisk(path)
    for _ in replay(state, read_frames(disk), read_aside(disk)):
        pass
    return state


def kept(state: State) -> set[Named]:
    """Messages that are there: unsettled, or a dead letter."""
    there = {(box.address, sequence) for box in state.mailboxes.values() for sequence in box.entries}
    return there | {(letter.mailbox, letter.sequence) for letter in state.letters}


def check_counts(state: State) -> None:
    """What a mailbox counts is what it holds."""
    for box in state.mailboxes.values():
        entries = list(box.entries.values())
        assert box.bytes == sum(each.size for each in entries)
        assert box.leased == sum(each.state == LEASED for each in entries)
        assert box.delayed == sum(each.state == DELAYED and each.ready_at == each.due_at for each in entries)
        assert all(each.attempts >= 0 for each in entries)
        assert sum(box.by_priority) == len(entries)


def test_the_journal_of_these_tests_holds_every_operation(journal: Path) -> None:
    there = {_kind(values) for _, values, _ in records_of(journal)}
    must = {each.__name__ for each in get_args(AnyRecord) if each.__struct_config__.tag < 128}
    assert must - there <= {"Completed", "Suspended", "Resumed"}


@pytest.mark.parametrize("field", ["time", "names"])
def test_any_record_may_be_passed_over_and_no_other_message_is_lost(journal: Path, field: Field) -> None:
    before = state_of(journal)
    frames = list(read_frames(RealDisk(journal)))
    for sequence, values, _ in records_of(journal):
        if values[0] == 128:
            continue
        state = first_state()
        bad = [tampered(frame, sequence, field) for frame in frames]
        for _ in replay(state, iter(bad), Aside([line_in(bad, sequence)])):
            pass
        assert state.sequence == before.sequence
        check_lost(before, state, sequence, values, field)
        check_counts(state)
        snapshot = Snapshot(state)
        restored = restore(list(snapshot.pieces()))
        snapshot.close()
        assert kept(restored) == kept(state)
        state.go_live()


def check_lost(before: State, after: State, sequence: int, values: list[object], field: Field) -> None:
    name, count = _kind(values), values[1]
    assert isinstance(count, int)
    brought = range(sequence, sequence + count if name in ("Accepted", "Published", "Redriven") else sequence)
    lost = {each for each in kept(before) - kept(after) if each[1] not in brought}
    if (name, field) == ("Subscribed", "names"):  # which mailbox it was cannot be read
        lost = {each for each in lost if not each[0].endswith((":audit", ":gone"))}
    assert not lost, (sequence, name, lost)


def tampered(frame: Frame, sequence: int, field: Field) -> Frame:
    payload = bytearray(frame.payload)
    tamper(payload, 0, len(payload), frame.first_sequence, sequence, field)
    return msgspec.structs.replace(frame, payload=bytes(payload))


def line_in(frames: list[Frame], sequence: int) -> AsideLine:
    for frame in frames:
        for index, at, record in Aside().sort_out(frame):
            if at == sequence and isinstance(record, Unreadable):
                return line_for(frame, index, at, record, reason="test", at="", by="")
    raise AssertionError("the record can be read")


@pytest.mark.parametrize(
    "name",
    [
        "EpochStarted",
        "MailboxOpened",
        "Subscribed",
        "Accepted",
        "Granted",
        "Acked",
        "Returned",
        "DeadLettered",
        "Redriven",
    ],
)
def test_a_start_names_the_record_and_opens_once_it_is_set_aside(
    journal: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sequence = first_of(journal, name)
    values = next(values for at, values, _ in records_of(journal) if at == sequence)
    path = copy_with_bad(journal, tmp_path / "data", sequence)
    bytes_before = [file.read_bytes() for file in segments_of(path)]
    with pytest.raises(RecordUnreadable) as refused:
        Mesh(path).close()
    assert f"sequence {sequence}:" in refused.value.message
    assert f"({name})" in refused.value.message
    assert "at offset" in refused.value.message
    assert f"set-aside --sequence {sequence} " in refused.value.hint
    assert run(path, "verify") == 9
    assert run(path, "set-aside", "--sequence", str(sequence)) == 0
    assert not (path / "aside.jsonl").exists(), "without --yes it only shows"
    assert run(path, "set-aside", "--sequence", str(sequence), "--yes", "--reason", "test") == 0
    assert run(path, "verify") == 0
    assert [file.read_bytes() for file in segments_of(path)] == bytes_before
    state = state_of(path)
    check_lost(state_of(journal), state, sequence, values, "time")
    goes_on(path, state)


def run(path: Path, *words: str) -> int:
    return main(["journal", *words, "--dir", str(path)])


def goes_on(path: Path, state: State) -> None:
    """A node opens, sends and receives there, and a second start finds the same."""
    with Mesh(path) as mesh:
        receipt = mesh.agent("newcomer").send("newcomer", "x")
        assert receipt.sequence >= state.sequence
        assert mesh.agent("newcomer").receive(timeout=5).content == "x"
    again = state_of(path)
    check_counts(again)
    assert kept(state) - kept(again) <= {(box, n) for box, n in kept(state) if box.endswith("gone")}
    pieces = Snapshot(again)
    restored = restore(list(pieces.pieces()))
    pieces.close()
    assert kept(restored) == kept(again)
    with Mesh(path):
        pass


def test_only_what_cannot_be_read_is_set_aside(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sequence = first_of(journal, "Acked")
    path = copy_with_bad(journal, tmp_path / "data", sequence)
    assert run(path, "set-aside", "--sequence", str(sequence + 1), "--yes", "--reason", "x") == 8
    assert run(path, "set-aside", "--all", "--yes") == 2, "it needs a reason"
    assert run(path, "set-aside") == 2, "it needs to be told which"
    assert not (path / "aside.jsonl").exists()
    assert run(path, "set-aside", "--all", "--yes", "--reason", "x") == 0
    assert run(path, "set-aside", "--all") == 0


def test_setting_aside_needs_a_stopped_node(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "data"
    shutil.copytree(journal, path)
    with Mesh(path):
        assert run(path, "set-aside", "--all") == 5


def test_each_message_is_told_and_the_audit_log_has_a_line(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sequence = first_of(journal, "Acked")
    path = copy_with_bad(journal, tmp_path / "data", sequence)
    capsys.readouterr()
    assert run(path, "set-aside", "--all", "--yes", "--reason", "written by 0.1.0", "--json") == 0
    [row] = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["sequence"], row["name"], row["mailbox"]) == (sequence, "Acked", "default/coder")
    assert row["fate"] == "is pending again, and may be delivered a second time"
    assert row["message_id"] == "m-0"
    [line] = read_aside(RealDisk(path)).lines.values()
    assert (line.sequence, line.reason) == (sequence, "written by 0.1.0")
    assert main(["audit", "list", "--dir", str(path), "--json"]) == 0
    assert "journal.set_aside" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"salt": "0" * 16}, "another salt"),
        ({"digest": "0" * 64}, "another one than the line describes"),
        ({"sequence": 1}, "can be read"),
        ({"sequence": 10_000}, "the journal ends before"),
        ({"count": 7}, "another one than the line describes"),
    ],
)
def test_a_file_that_does_not_fit_refuses_the_start_by_name(
    journal: Path, tmp_path: Path, change: dict[str, object], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy_with_bad(journal, tmp_path / "data", first_of(journal, "Acked"))
    assert run(path, "set-aside", "--all", "--yes", "--reason", "x") == 0
    disk = RealDisk(path)
    [line] = read_aside(disk).lines.values()
    other = msgspec.structs.replace(line, **change)
    lines = [line, other] if "sequence" in change else [other]
    write_aside(disk, Aside(lines))
    with pytest.raises(AsideInvalid, match=f"aside.jsonl names.*{why}"):
        Mesh(path).close()
    assert run(path, "verify") == 9
    (path / "aside.jsonl").write_text("no line of JSON\n")
    with pytest.raises(AsideInvalid, match=r"line 1 of aside\.jsonl"):
        Mesh(path).close()


def test_cat_shows_what_cannot_be_read_and_goes_on(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sequence = first_of(journal, "Acked")
    path = copy_with_bad(journal, tmp_path / "data", sequence)
    capsys.readouterr()
    assert run(path, "cat", "--json") == 0
    rows = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["sequence"] for row in rows] == list(range(1, state_of(journal).sequence))
    bad = rows[sequence - 1]
    assert (bad["operation"], bad["mailbox"]) == ("UNREADABLE_8", "default/coder")


def test_the_mirror_gets_the_file_and_a_restore_brings_it_back(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, mirror = copy_with_bad(journal, tmp_path / "data", first_of(journal, "Acked")), tmp_path / "mirror"
    assert run(path, "set-aside", "--all", "--yes", "--reason", "x") == 0
    with Mesh(path, settings=MeshSettings(mirror=mirror)):
        pass
    assert (mirror / "aside.jsonl").read_bytes() == (path / "aside.jsonl").read_bytes()
    assert run(path, "verify", "--mirror", str(mirror)) == 0
    (path / "aside.jsonl").unlink()
    assert run(path, "verify", "--mirror", str(mirror)) == 9
    shutil.rmtree(path)
    path.mkdir()
    assert run(path, "restore", "--from", str(mirror), "--yes") == 0
    with Mesh(path):
        pass
    assert len(verify(RealDisk(path), records=True).set_aside) == 1


def test_a_stranger_passes_over_the_same_sequences(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sequence = first_of(journal, "Returned")
    path = copy_with_bad(journal, tmp_path / "data", sequence)
    assert run(path, "set-aside", "--all", "--yes", "--reason", "x") == 0
    files = {each.relative_to(path).as_posix(): each.read_bytes() for each in segments_of(path)}
    files["aside.jsonl"] = (path / "aside.jsonl").read_bytes()
    assert sequences_set_aside(files, split) == {sequence: 1}


def split(payload: bytes) -> list[tuple[int, int, bytes]]:
    raws = msgspec.msgpack.decode(payload, type=list[msgspec.Raw])
    heads = [msgspec.msgpack.decode(raw)[:2] for raw in raws]
    return [(operation, count, bytes(raw)) for (operation, count), raw in zip(heads, raws, strict=True)]
