"""Errors: one line, four words, and the exit code of the table."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from pathlib import Path

import apsw
import pytest

from relaymesh import errors
from relaymesh.cli.failure import CODES, EXIT_CODES, MEANINGS, Exit, TaskTimedOut, failure_of
from relaymesh.cli.main import main
from relaymesh.errors import MeshError
from relaymesh.sdk.mesh import Mesh
from tests.cli.running import Cli, command, environment, piped


def every_error() -> list[type[MeshError]]:
    named = [getattr(errors, name) for name in errors.__all__]
    return [kind for kind in named if issubclass(kind, MeshError)]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_an_exit_code_and_its_own_words(kind: type[MeshError]) -> None:
    failure = failure_of(kind("something\nhappened"))
    assert failure is not None
    assert failure.exit in set(Exit) - {Exit.OK}
    assert failure.line().startswith(f"error: {kind.code}: something happened | ")
    assert failure.line().endswith(f"retryable: {'yes' if kind.retryable else 'no'}")
    assert "\n" not in failure.line()
    assert set(failure.fields()) == {"code", "message", "hint", "retryable"}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.InvalidEnvelope, 2), (errors.PayloadTooLarge, 2), (errors.InvalidSettings, 2),
        (errors.UnknownRecipient, 4), (errors.NotFound, 4), (errors.Conflict, 8), (errors.LeaseLost, 8),
        (errors.MailboxFull, 1), (errors.DeadLettersFull, 1), (errors.OverBudget, 1), (errors.DiskFloor, 1),
        (errors.StoreLagging, 1), (errors.NoAnswer, 6),
        (errors.InvalidPlan, 2), (errors.TaskOver, 8), (errors.TaskFailed, 1), (TaskTimedOut, 6),
        (errors.Closed, 1), (errors.DirectoryInUse, 5), (errors.JournalPoisoned, 1),
        (errors.JournalDamaged, 9), (errors.RecordUnreadable, 9), (errors.AsideInvalid, 9),
        (errors.FormatTooNew, 1), (errors.StoreMisconfigured, 1),
    ],
)  # fmt: skip
def test_the_table_is_as_it_was_promised(kind: type[MeshError], code: int) -> None:
    assert EXIT_CODES[kind] == code


def test_errors_that_are_not_ours_have_codes_too() -> None:
    told = {
        type(error): failure_of(error)
        for error in (
            errors.Empty("nothing came"),
            PermissionError(errno.EACCES, "Permission denied", "x"),
            FileNotFoundError(errno.ENOENT, "No such file", "x"),
            TimeoutError(errno.ETIMEDOUT, "timed out"),
            apsw.FullError("disk full"),
            OSError(errno.ENOSPC, "No space left on device", "x"),
        )
    }
    codes = [(each.code, int(each.exit)) for each in told.values() if each is not None]
    assert codes == [
        ("EMPTY", 6), ("PERMISSION_DENIED", 3), ("NOT_FOUND", 4), ("TIMEOUT", 6), ("STORE_FAILED", 1),
        ("ENOSPC", 1),
    ]  # fmt: skip
    assert set(CODES) <= set(EXIT_CODES)


def test_a_directory_error_caused_by_permissions_is_one_of_permissions() -> None:
    error = errors.DirectoryError("the data directory cannot be prepared")
    error.__cause__ = PermissionError(errno.EACCES, "Permission denied")
    failure = failure_of(error)
    assert failure is not None
    assert failure.exit == Exit.AUTH


def test_every_exit_code_has_a_meaning() -> None:
    assert list(MEANINGS) == list(Exit)


def test_what_nobody_foresaw_is_not_hidden(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaymesh.cli.messages.look", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli("inbox", "coder")


# -- one run for each exit code


def test_0_done(cli: Cli) -> None:
    assert cli("send", "coder", "x").code == 0


def test_1_failed(cli: Cli) -> None:
    with Mesh(cli.path) as mesh:
        mesh.agent("tester", capacity=1)
    assert cli("send", "tester", "x").code == 0
    full = cli.json("send", "tester", "y")
    assert (full.code, full.error["code"], full.error["retryable"]) == (1, "MAILBOX_FULL", True)


@pytest.mark.parametrize("words", [["nonsense"], ["send", "--nonsense"], ["journal", "cat", "--from", "x"]])
def test_2_usage(cli: Cli, words: list[str]) -> None:
    shown, told = cli(*words), cli.json(*words)
    assert (shown.code, told.code, shown.out) == (2, 2, "")
    assert told.error["code"] == "USAGE"
    assert told.error["hint"].endswith("--help")
    assert len(shown.err.splitlines()) == 1


def test_3_auth(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Mesh:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr("relaymesh.cli.options.Mesh", refuse)
    ran = cli.json("send", "coder", "x")
    assert (ran.code, ran.error["code"]) == (3, "PERMISSION_DENIED")
    assert str(cli.path) in ran.error["message"]


def test_4_not_found(cli: Cli) -> None:
    assert cli("inbox", "nobody").code == 4


@pytest.mark.parametrize(
    "words",
    [
        ["send", "coder", "x"],
        ["inbox", "coder", "--take", "1"],
        ["topic", "pub", "a", "x"],
        ["dlq", "redrive", "dead-0"],
        ["dlq", "purge", "dead-0", "--yes", "--reason", "test"],
        ["store", "rebuild"],
    ],
    ids=" ".join,
)
def test_5_another_process_has_the_directory(cli: Cli, words: list[str]) -> None:
    with Mesh(cli.path):
        ran = cli.json(*words)
    assert (ran.code, ran.error["code"], ran.error["retryable"]) == (5, "DIRECTORY_IN_USE", True)
    assert f"process {os.getpid()} is using" in ran.error["message"]


def test_6_timeout(cli: Cli) -> None:
    ran = cli.json("inbox", "tester", "--take", "1", "--timeout", "0.05")
    assert (ran.code, ran.error["code"]) == (6, "EMPTY")


def test_8_conflict(cli: Cli) -> None:
    cli("send", "coder", "x", "--id", "same")
    ran = cli.json("send", "coder", "y", "--id", "same")
    assert (ran.code, ran.error["code"]) == (8, "CONFLICT")


def test_130_interrupted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("relaymesh.cli.messages.look", interrupt)
    ran = cli("inbox", "coder")
    assert (ran.code, ran.out, ran.err) == (130, "", "")


# -- in processes of their own


@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_is_quiet(cli: Cli) -> None:
    words = command("inbox", "tester", "--take", "1", "--timeout", "30", "--dir", str(cli.path))
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), text=True
    ) as process:
        lock = cli.path / "lock"
        while f"pid {process.pid}" not in lock.read_text():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


def test_a_closed_pipe_is_quiet(cli: Cli) -> None:
    words = command("journal", "cat", "--dir", str(cli.path))
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, b"")


def test_an_error_in_a_pipe_is_one_line(tmp_path: Path) -> None:
    ran = piped("inbox", "coder", "--dir", str(tmp_path / "none"))
    assert (ran.code, ran.out) == (4, "")
    assert len(ran.err.splitlines()) == 1
    told = piped("inbox", "coder", "--json", "--dir", str(tmp_path / "none"))
    assert json.loads(told.err)["code"] == "NOT_FOUND"


def test_json_is_heard_also_where_the_arguments_are_not_understood(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--json", "nonsense"]) == 2
    assert json.loads(capsys.readouterr().err)["code"] == "USAGE"
