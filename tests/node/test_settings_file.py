"""The settings file: what is hostile in it is refused whole, and what goes before it does."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from relaymesh.errors import DirectoryInUse, InvalidSettings, MeshError
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings
from relaymesh.node.settings_file import (
    FILE_BYTES_MAX,
    SETTINGS_FILE,
    from_environment,
    read_settings,
    read_toml,
)
from relaymesh.node.tuning import POLL_MS, Given, Tuning, resolve
from relaymesh.wire.settings import HISTORY_MAX, ReloadSettings, SettingsLoad, ShowSettings

POSIX = pytest.mark.skipif(os.name == "nt", reason="there is no such file")
HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "half": b'{"max_attempts": 5, "max',
    "two objects": b'{"max_attempts": 5}{"max_attempts": 6}',
    "a list": b"[]",
    "a number": b"3",
    "null": b"null",
    "NaN": b'{"max_attempts": NaN}',
    "1e999": b'{"done_retention_days": 1e999}',
    "a huge number": b'{"max_attempts": %s}' % (b"9" * 5_000),
    "a fraction": b'{"max_attempts": 3.5}',
    "3.0 for 3": b'{"max_attempts": 3.0}',
    "negative": b'{"max_attempts": -1}',
    "a bool for a number": b'{"max_attempts": true}',
    "a number for a bool": b'{"pause_worker_when_local_not_alive": 1}',
    "text for a number": b'{"max_attempts": "3"}',
    "null for a number": b'{"max_attempts": null}',
    "an object for a number": b'{"max_attempts": {"max_attempts": 3}}',
    "a key twice": b'{"max_attempts": 5, "max_attempts": 6}',
    "a key twice, escaped": b'{"max_attempts": 5, "max\\u005fattempts": 6}',
    "deep": b'{"max_attempts": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "a lone surrogate": b'{"\\ud800": 1}',
    "not UTF-8": b'{"max_attempts\xff": 1}',
    "UTF-16": '{"max_attempts": 5}'.encode("utf-16"),
    "NUL": b"\0" * 100,
    "huge": b'{"max_attempts": 5}' + b" " * FILE_BYTES_MAX,
    "a comment": b'{"max_attempts": 5} // five',
    "unknown": b'{"max_attempts": 5, "max_atempts": 5}',
    "contradicting": b'{"max_attempts": 5, "heartbeatInterval": 90000}',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_whole_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / SETTINGS_FILE
    path.write_bytes(b"{}")
    tuning = Tuning(Given(), tmp_path, lambda: 0)
    path.write_bytes(HOSTILE[name])
    with pytest.raises(InvalidSettings) as refused:
        tuning.load("reload")
    assert refused.value.hint
    assert len(refused.value.message) < 400
    assert "\n" not in refused.value.message
    assert tuning.values.max_attempts == 3
    with pytest.raises(InvalidSettings):
        Tuning(Given(), tmp_path, lambda: 0)


def test_a_byte_order_mark_is_no_reason_to_refuse(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_bytes(b"\xef\xbb\xbf" + b'{"max_attempts": 5}\r\n')
    assert read_settings(tmp_path / SETTINGS_FILE) == {"max_attempts": 5}


def test_no_file_is_no_settings(tmp_path: Path) -> None:
    assert read_settings(tmp_path / SETTINGS_FILE) == {}


@POSIX
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    folder, pipe, nothing = [tmp_path / f"{number}.json" for number in range(3)]
    folder.mkdir()
    os.mkfifo(pipe)
    nothing.symlink_to("nowhere")
    for path in (folder, pipe, nothing):
        with pytest.raises(InvalidSettings, match=r"no regular file|link to nothing|cannot be read"):
            read_settings(path)
    device = tmp_path / "device.json"
    device.symlink_to("/dev/zero")
    with pytest.raises(InvalidSettings, match="no regular file"):
        read_settings(device)
    linked = tmp_path / "linked.json"
    (tmp_path / "real.json").write_text('{"max_attempts": 5}')
    linked.symlink_to("real.json")  # as a Kubernetes ConfigMap is mounted
    assert read_settings(linked) == {"max_attempts": 5}


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / SETTINGS_FILE
    path.write_text("{}")
    path.chmod(0)
    with pytest.raises(InvalidSettings, match="cannot be read"):
        read_settings(path)


def test_an_error_of_the_disk_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / SETTINGS_FILE).write_text("{}")

    def fail(*_: Any) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "read", fail)
    with pytest.raises(InvalidSettings, match="Input/output error"):
        read_settings(tmp_path / SETTINGS_FILE)


def test_two_writers_and_a_reader_see_one_file_or_the_other(tmp_path: Path) -> None:
    """Both replace it by a rename; the values of one never stand beside those of the other."""
    path, stop = tmp_path / SETTINGS_FILE, threading.Event()

    def replace(number: int) -> None:
        content = json.dumps({"max_attempts": number, "queue_capacity": number})
        while not stop.is_set():
            draft = tmp_path / f"draft{number}"
            draft.write_text(content)
            draft.replace(path)
            time.sleep(0.0005)

    writers = [threading.Thread(target=replace, args=(number,)) for number in (4, 7)]
    for writer in writers:
        writer.start()
    seen = set()
    end = time.monotonic() + 0.7
    while time.monotonic() < end:
        try:
            found = read_settings(path)
        except InvalidSettings as error:
            assert "while it was read" in error.message  # noqa: PT017 - it may be, and nothing else
            continue
        seen.add((found.get("max_attempts"), found.get("queue_capacity")))
    stop.set()
    for writer in writers:
        writer.join()
    assert seen - {(None, None)} <= {(4, 4), (7, 7)}
    assert seen & {(4, 4), (7, 7)}


def test_a_file_that_is_written_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / SETTINGS_FILE, os.read
    path.write_text('{"max_attempts": 4}')
    writes = [b'{"max_attempts": 55}']

    def read(descriptor: int, size: int) -> bytes:
        data = real(descriptor, size)
        if writes:
            path.write_bytes(writes.pop())
        return data

    monkeypatch.setattr(os, "read", read)
    assert read_settings(path) == {"max_attempts": 55}


# -- what goes before what


def test_the_environment_goes_before_flags_before_toml_before_the_file(tmp_path: Path) -> None:
    file, toml = tmp_path / SETTINGS_FILE, tmp_path / "relaymesh.toml"
    layers: list[tuple[str, Any]] = [
        ("default", Given()),
        ("file", Given()),
        ("toml", Given(toml=toml)),
        ("flag", Given(toml=toml, flags={"max_attempts": 6})),
        (
            "environment",
            Given(toml=toml, flags={"max_attempts": 6}, environment={"RELAYMESH_MAX_ATTEMPTS": "7"}),
        ),
    ]
    toml.write_text("[settings]\nmax_attempts = 5\n[agents.a]\ncommand = ['x']\n")
    for number, (origin, given) in enumerate(layers):
        if origin == "file":
            file.write_text('{"max_attempts": 4}')
        found = resolve(given, file)
        assert found.values.max_attempts == 3 + number
        assert next(each.origin for each in found.shown() if each.name == "max_attempts") == origin


def test_variables_are_read_as_what_the_setting_is() -> None:
    found = from_environment(
        {
            "RELAYMESH_MAX_ATTEMPTS": "7",
            "RELAYMESH_DONE_RETENTION_DAYS": "0.5",
            "RELAYMESH_PAUSE_WORKER_WHEN_LOCAL_NOT_ALIVE": "False",
            "RELAYMESH_DEFAULT_TTL": "0",
            "RELAYMESH_QUEUE_CAPACITY": "",
            "RELAYMESH_HOME": "/x",
        }
    )
    assert found == {
        "max_attempts": 7,
        "done_retention_days": 0.5,
        "pause_worker_when_local_not_alive": False,
        "defaultTTL": 0,
    }


@pytest.mark.parametrize("text", ["x", "3.5", "-1", "nan", "9" * 10_000, "0x10", "true", "1e3"])
def test_a_variable_that_means_nothing_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidSettings, match="RELAYMESH_MAX_ATTEMPTS"):
        from_environment({"RELAYMESH_MAX_ATTEMPTS": text})


@pytest.mark.parametrize(
    "text",
    ["settings = 3", "[settings]\nmax_atempts = 3", "[settings", "\xff", "[settings]\nmax_attempts=nan"],
)
def test_a_wrong_toml_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "relaymesh.toml").write_text(text, encoding="latin-1")
    with pytest.raises(InvalidSettings):
        read_toml(tmp_path / "relaymesh.toml")


# -- a node


def test_a_program_that_may_not_have_the_directory_is_told_so_also_with_a_wrong_file(tmp_path: Path) -> None:
    node = Node(tmp_path, MeshSettings(), background=False)
    (tmp_path / SETTINGS_FILE).write_text("nonsense")
    with pytest.raises(DirectoryInUse):
        Node(tmp_path, MeshSettings(), background=False)
    node.close()
    with pytest.raises(InvalidSettings):
        Node(tmp_path, MeshSettings(), background=False)
    (tmp_path / SETTINGS_FILE).unlink()
    Node(tmp_path, MeshSettings(), background=False).close()


def test_a_program_that_chose_a_value_keeps_it(tmp_path: Path) -> None:
    (tmp_path / SETTINGS_FILE).write_text('{"payload_max_bytes": 5, "done_retention_days": 3}')
    node = Node(tmp_path, MeshSettings(payload_bytes_max=77), background=False)
    try:
        assert (node.values().payload_max_bytes, node.values().done_retention_days) == (77, 3)
        origins = {each.name: each.origin for each in node.answer(ShowSettings()).settings}
        assert (origins["payload_max_bytes"], origins["done_retention_days"]) == ("flag", "file")
    finally:
        node.close()


def test_a_file_is_looked_at_every_five_seconds_and_not_more_often(tmp_path: Path) -> None:
    tuning = Tuning(Given(), tmp_path, lambda: 0)
    assert tuning.poll(1_000) is None
    (tmp_path / SETTINGS_FILE).write_text('{"max_attempts": 5}')
    assert tuning.poll(1_000 + POLL_MS - 1) is None
    load = tuning.poll(1_000 + POLL_MS)
    assert load is not None
    assert load.changed_fields == ["max_attempts"]
    assert tuning.values.max_attempts == 5
    (tmp_path / SETTINGS_FILE).unlink()
    assert tuning.poll(1_000 + 2 * POLL_MS) is not None
    assert tuning.values.max_attempts == 3


def test_a_node_that_starts_again_goes_on_with_the_settings_that_were_sound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    toml, kept = tmp_path / "relaymesh.toml", tmp_path / "sound.json"
    given = Given(toml=toml, kept=kept)
    toml.write_text("[settings]\nmax_attempts = 7")
    (tmp_path / SETTINGS_FILE).write_text('{"queue_capacity": 9}')
    Tuning(given, tmp_path, lambda: 0)
    (tmp_path / SETTINGS_FILE).write_text('{"queue_capacity": 8}')
    Tuning(given, tmp_path, lambda: 0).load("reload")
    toml.write_text("[settings]\nmax_atempts = 7")
    again = Tuning(given, tmp_path, lambda: 0)
    assert (again.values.max_attempts, again.values.queue_capacity) == (7, 8)
    assert "max_atempts" in again.shown().problem
    assert [(each.cause, each.refused) for each in again.at_start] == [("start", False), ("start", True)]
    assert len(caplog.messages) == 1
    toml.write_text("[settings]\nmax_attempts = 6")
    assert again.poll(POLL_MS) is not None
    assert (again.values.max_attempts, again.shown().problem) == (6, "")
    toml.write_text("[settings")
    assert Tuning(given, tmp_path, lambda: 0).values.max_attempts == 6
    for damaged in (b"", b"{}", b'{"toml": {"max_attempts": -1}}', b"\xff"):
        kept.write_bytes(damaged)
        with pytest.raises(InvalidSettings, match=r"relaymesh.toml is not sound TOML"):
            Tuning(given, tmp_path, lambda: 0)


def test_the_history_is_bounded_and_a_damaged_one_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, MeshSettings(), background=False)
    for _ in range(HISTORY_MAX + 5):
        node.answer(ReloadSettings("me"))
    node.close()
    (tmp_path / SETTINGS_FILE).write_text('{"max_attempts": 5}')
    node = Node(tmp_path, MeshSettings(), background=False)
    history = node.tuning.history(10_000)
    assert len(history) == HISTORY_MAX
    assert history[0] == SettingsLoad(history[0].at, "start", ["max_attempts"])
    assert (history[1].cause, history[1].by, history[1].changed_fields) == ("reload", "me", [])
    node.close()
    (tmp_path / "settings-history.json").write_bytes(b"\xffnonsense")
    node = Node(tmp_path, MeshSettings(), background=False)
    assert "begins anew" in caplog.text
    assert len(node.tuning.history(10)) == 1
    node.close()


def test_a_failing_listener_keeps_no_other_from_the_news(tmp_path: Path) -> None:
    tuning = Tuning(Given(), tmp_path, lambda: 0)
    told: list[SettingsLoad] = []

    def fail(_: SettingsLoad) -> None:
        raise MeshError("closed")

    tuning.on_load += [fail, told.append]
    tuning.load("reload")
    assert len(told) == 1
