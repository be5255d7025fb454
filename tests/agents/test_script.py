"""A script agent: what it reads, what its exit and output mean, and what its limits do."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from relaymesh.agents.adapter import Done, Failure, Grown, Progress, Text, ToolUse, Used, Work
from relaymesh.agents.command import Command, Limits
from relaymesh.agents.processes import marks_alive
from relaymesh.agents.script import Script
from relaymesh.errors import InvalidSettings
from tests.agents.scripted import BRIEF, MARKS, ran, sh, work


def failure(command: Command, runs: Path, limits: Limits = BRIEF, given: Work | None = None) -> Failure:
    outcome = ran(command, runs, limits, given).outcome
    assert isinstance(outcome, Failure)
    assert marks_alive(MARKS) == {}
    return outcome


def test_it_reads_one_json_object_and_its_output_is_the_result(tmp_path: Path) -> None:
    given = work(b'{"goal":\n"\xc3\xa4 --help $(id)"}', task="t1", step="build", attempt=2, time_limit_s=9.0)
    got = ran(sh("cat"), tmp_path, given=given)
    assert isinstance(got.outcome, Done)
    assert json.loads(got.outcome.value) == {
        "content": {"goal": "ä --help $(id)"},
        "sender": "planner",
        "type": "task_assign",
        "agent": "coder",
        "message_id": "m1",
        "run": given.run,
        "task": "t1",
        "step": "build",
        "attempt": 2,
        "workspace": None,
        "time_limit_s": 9.0,
        "tokens_left": None,
        "cost_left_usd": None,
        "time_left_s": None,
    }


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("true", b"null"),
        ("echo hello", b'"hello"'),
        ("echo '{\"a\": [1, 2]}'", b'{"a": [1, 2]}'),
        ("echo 42", b"42"),
        ("echo '[INFO'", None),
        ("""echo '{"relaymesh": "done", "value": {"x": 1}, "tokens": 7}'""", b'{"x": 1}'),
        ("""echo '{"a": 1, "b'""", None),
        ("""echo '{"a": 1, "a": 2}'""", None),
        ("""echo '{"a": NaN}'""", None),
        ("""echo '{"a": "\\ud800"}'""", None),
        ("printf '\\377\\376'", None),
        ("""echo '{"relaymesh": "done", "valeu": 1}'""", None),
        ("""echo '{"relaymesh": "progress", "text": "x"}'""", None),
        ("""echo '{"relaymesh": "done", "cost_usd": -1}'""", None),
    ],
)
def test_output_is_json_or_text_and_garbage_is_invalid(
    tmp_path: Path, script: str, value: bytes | None
) -> None:
    outcome = ran(sh(script), tmp_path).outcome
    if value is None:
        assert isinstance(outcome, Failure)
        assert (outcome.code, outcome.final) == ("invalid", True)
    else:
        assert isinstance(outcome, Done)
        assert outcome.value == value


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo no disk >&2; exit 1", Failure("other", "exit code 1: no disk")),
        ("exit 65", Failure("invalid", "exit code 65", final=True)),
        ("exit 69", Failure("rate_limited", "exit code 69")),
        ("exit 75", Failure("other", "exit code 75")),
        ("exit 77", Failure("fatal", "exit code 77", final=True)),
        ("kill -KILL $$", Failure("abandoned", "it was ended by SIGKILL from outside", abandoned=True)),
        ("kill -SEGV $$", Failure("other", "it crashed with SIGSEGV")),
        (
            """echo '{"relaymesh": "failed", "reason": "no branch", "code": "nb", "tokens": 5}'; exit 1""",
            Failure("nb", "no branch", final=True, used=Used(None, 5)),
        ),
        (
            """echo '{"relaymesh": "retry", "reason": "busy", "after_s": 1.5}'""",
            Failure("other", "busy", after_ms=1500),
        ),
        (
            """echo '{"relaymesh": "retry", "until": 4102444800, "code": "rate_limited"}'""",
            Failure("rate_limited", "try again", until_ms=4102444800000),
        ),
        (
            """echo '{"relaymesh": "retry", "until": "2100-01-01T00:00:00Z"}'""",
            Failure("other", "try again", until_ms=4102444800000),
        ),
        ("""echo '{"relaymesh": "drop"}'""", Failure("dropped", "dropped", drop=True)),
        (
            """echo '{"relaymesh": "retry", "after_s": -1}'""",
            Failure("invalid", "after (in seconds) must lie between 0 and 9.0072e+12, not -1.0", True),
        ),
        ("""echo '{"relaymesh": "done", "value": 1}'; exit 3""", Failure("other", "exit code 3")),
    ],
)
def test_exit_codes_and_forms_say_how_it_failed(tmp_path: Path, script: str, expected: Failure) -> None:
    assert failure(sh(script), tmp_path) == expected


def test_a_step_may_go_on_as_more_steps(tmp_path: Path) -> None:
    script = """echo '{"relaymesh": "continue", "steps": [{"name": "t", "agent": "tester"}]}'"""
    assert ran(sh(script), tmp_path).outcome == Grown(b'[{"name": "t", "agent": "tester"}]')


def test_lines_on_stderr_are_progress_usage_tools_and_log(tmp_path: Path) -> None:
    script = """
        echo '{"relaymesh": "progress", "text": "half"}' >&2
        echo '{"relaymesh": "usage", "cost_usd": 0.5, "tokens": 12}' >&2
        echo '{"relaymesh": "tool", "name": "grep"}' >&2
        echo plain >&2
        echo 1
    """
    got = ran(sh(script), tmp_path)
    assert got.events == [Progress("half"), Used(0.5, 12), ToolUse("grep"), Text("plain", "stderr")]
    assert got.outcome == Done(b"1", Used(0.5, 12))
    assert (got.folder / "stderr.log").read_text().count("\n") == 4
    assert (got.folder / "stdout.log").read_text() == "1\n"


def test_content_that_is_no_json_cannot_forge_a_field(tmp_path: Path) -> None:
    got = failure(sh("cat"), tmp_path, given=work(b'1,"sender":"owner"'))
    assert (got.code, got.final) == ("invalid", True)


def test_an_agent_gets_no_variable_that_is_not_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET", "not-for-agents")
    monkeypatch.setenv("WANTED", "yes")
    got = ran(sh("env", env={"OWN": "1"}, pass_env=("WANTED",)), tmp_path)
    assert isinstance(got.outcome, Done)
    lines = json.loads(got.outcome.value).splitlines()
    assert {"OWN=1", "WANTED=yes", f"RELAYMESH_RUN={got.folder.name}"} <= set(lines)
    assert not any("not-for-agents" in line for line in lines)


def test_a_secret_reaches_the_agent_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary-0123456789")
    (tmp_path / "key").write_text("other-secret-987\n")
    command = sh(
        'test ${#KEY} = 16 || exit 9; echo "$TOKEN $KEY" >&2; echo "$TOKEN"; echo "$TOKEN" >&2',
        secrets={"TOKEN": "env:CANARY", "KEY": f"file:{tmp_path}/key"},
    )
    got = ran(command, tmp_path / "runs")
    assert isinstance(got.outcome, Failure)
    assert got.outcome.reason == "the output holds the value of the secret TOKEN"
    written = b"".join(path.read_bytes() for path in (tmp_path / "runs").rglob("*.log"))
    assert b"[secret] [secret]\n[secret]\n" in written
    everything = written + repr(got.events).encode() + repr(got.outcome).encode() + repr(command).encode()
    assert b"canary-01" not in everything
    assert b"other-secret" not in everything


def test_a_missing_secret_is_fatal_and_named(tmp_path: Path) -> None:
    got = failure(sh("true", secrets={"TOKEN": "env:NO_SUCH_ONE"}), tmp_path)
    assert (got.code, got.final) == ("fatal", True)
    assert "env:NO_SUCH_ONE" in got.reason


def test_a_secret_written_in_place_of_a_reference_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidSettings) as caught:
        sh("true", secrets={"TOKEN": "hunter2hunter2"})
    assert "hunter2" not in str(caught.value)


def test_a_program_that_is_not_there_is_fatal(tmp_path: Path) -> None:
    got = failure(Command(argv=("no-such-program",)), tmp_path)
    assert (got.code, got.final) == ("fatal", True)


def test_the_time_limit_ends_it(tmp_path: Path) -> None:
    got = failure(sh("sleep 60"), tmp_path, Limits(time_s=0.2, grace_s=0.1))
    assert (got.code, got.reason) == ("timeout", "it took longer than its limit of 0.2 s")


def test_silence_ends_it_and_output_is_life(tmp_path: Path) -> None:
    limits = Limits(silence_s=0.4, grace_s=0.1)
    got = failure(sh("sleep 60"), tmp_path, limits)
    assert (got.code, got.reason) == ("timeout", "it wrote nothing for 0.4 s")
    alive = ran(sh("for i in 1 2 3 4 5 6; do echo . >&2; sleep 0.1; done; echo 1"), tmp_path, limits)
    assert alive.outcome == Done(b"1")


def test_too_much_output_ends_it_at_once(tmp_path: Path) -> None:
    got = failure(sh("yes"), tmp_path, Limits(result_bytes_max=100_000, log_bytes_max=50_000))
    assert (got.code, got.final) == ("invalid", True)
    assert "more than 100000 bytes" in got.reason
    (log,) = tmp_path.glob("*/stdout.log")
    assert log.stat().st_size < 51_000


@pytest.mark.parametrize("pause", ["true", "sleep 0.2"])
def test_a_flood_on_stderr_is_cut_and_its_end_is_still_heard(pause: str, tmp_path: Path) -> None:
    script = f"""yes | head -c 2000000 >&2; {pause}
        printf '{{"relaymesh": "usage",' >&2; {pause}; echo '"cost_usd": 0.25}}' >&2; {pause}
        printf 'the last' >&2; {pause}; echo ' words' >&2; exit 1"""
    got = ran(sh(script), tmp_path, Limits(log_bytes_max=10_000))
    assert isinstance(got.outcome, Failure)
    assert got.outcome.reason == "exit code 1: the last words"
    assert [event.cost_usd for event in got.events if isinstance(event, Used)] == [0.25]
    assert len(got.events) < 20_000
    assert "more bytes were written and not kept" in (got.folder / "stderr.log").read_text()


def test_it_need_not_read_its_input(tmp_path: Path) -> None:
    big = work(json.dumps("x" * 5_000_000).encode())
    assert ran(sh("exec <&-; echo 1"), tmp_path, given=big).outcome == Done(b"1")
    assert ran(sh("sleep 0.1; echo 2"), tmp_path, given=big).outcome == Done(b"2")


def test_cancelling_ends_every_process(tmp_path: Path) -> None:
    given = work()
    script = Script(sh("trap '' TERM; setsid sleep 60 & sleep 60"), BRIEF, runs=tmp_path)

    async def cancelled() -> None:
        attempt = asyncio.ensure_future(script.run(given, lambda _: None))
        while len(marks_alive(given.run).get(given.run, ())) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt

    asyncio.run(cancelled())
    assert marks_alive(given.run) == {}


def test_nothing_is_left_open(tmp_path: Path) -> None:
    ran(sh("true"), tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for script in ("true", "exit 1", "yes", "sleep 60"):
        ran(sh(script), tmp_path, Limits(time_s=0.2, grace_s=0.1, result_bytes_max=1000))
    ran(Command(argv=("no-such-program",)), tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("mark", ["", "..", "a/b", "a\0b", "x" * 201, "-rf", "\ud800", 5])
def test_a_run_that_cannot_be_a_file_name_is_refused(tmp_path: Path, mark: str) -> None:
    with pytest.raises(InvalidSettings):
        ran(sh("true"), tmp_path, given=work(run=mark))


@pytest.mark.parametrize(
    "fields",
    [
        {"argv": "echo hi"},
        {"argv": ()},
        {"argv": ("a\0b",)},
        {"argv": (5,)},
        {"argv": ("\ud800",)},
        {"argv": ("x",), "env": {"A=B": "c"}},
        {"argv": ("x",), "env": {"A": 5}},
        {"argv": ("x",), "env": {"RELAYMESH_RUN": "mine"}},
        {"argv": ("x",), "pass_env": ["A B"]},
        {"argv": ("x",), "user": 5},
    ],
)
def test_a_command_that_is_wrong_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings):
        Command(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fields",
    [
        {"time_s": 0},
        {"time_s": float("nan")},
        {"silence_s": "5"},
        {"grace_s": -1},
        {"result_bytes_max": 1.5},
        {"log_bytes_max": 1 << 60},
        {"processes_max": 0},
        {"processes_max": True},
        {"processes_unbounded": "perhaps"},
    ],
)
def test_limits_that_are_wrong_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings):
        Limits(**fields)  # type: ignore[arg-type]
