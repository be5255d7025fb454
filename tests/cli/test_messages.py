"""send, inbox, topic."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from relaymesh.sdk.mesh import Mesh
from tests.cli.running import Cli


def received(cli: Cli, name: str) -> list[Any]:
    return [row["content"] for row in cli.json("inbox", name, "--take", "9", "--ack").rows]


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    stdin = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)


def test_a_send_answers_with_its_receipt(cli: Cli) -> None:
    shown = cli("send", "tester", "hello", "--id", "m-1")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[0].split() == ["id", "m-1"]
    again = cli.json("send", "tester", "hello", "--id", "m-1")
    assert again.code == 0
    assert again.row["duplicate"] is True
    assert again.row["to"] == "default/tester"
    assert {line.split()[0] for line in shown.out.splitlines()} == set(again.row)


def test_every_field_of_a_message_arrives(cli: Cli) -> None:
    sent = cli.json(
        "send", "tester", "x", "--from", "boss", "--type", "question", "--priority", "high", "--task", "t",
        "--key", "k", "--id", "full", "--ttl", "60", "--correlation-id", "c", "--reply-to", "planner",
        "--requires-ack", "--tag", "a", "--tag", "b", "--max-retries", "7",
    )  # fmt: skip
    assert sent.code == 0
    with Mesh(cli.path) as mesh:
        envelope = mesh.agent("tester").receive(timeout=5).envelope
    assert envelope.sender == "default/boss"
    assert (envelope.type, envelope.priority, envelope.task, envelope.key) == ("question", 2, "t", "k")
    assert (envelope.ttl_ms, envelope.correlation_id, envelope.max_retries) == (60_000, "c", 7)
    assert (envelope.reply_to, envelope.requires_ack, envelope.tags) == ("default/planner", True, ("a", "b"))


def test_a_delayed_send_says_when_it_is_due(cli: Cli) -> None:
    sent = cli.json("send", "tester", "later", "--delay-ms", "60000")
    assert sent.row["scheduled_at"] > "2020"
    [row] = cli.json("inbox", "tester").rows
    assert row["state"] == "delayed"


def test_an_odd_delay_is_noted(cli: Cli) -> None:
    sent = cli("send", "tester", "now", "--delay-ms", "-5")
    assert sent.code == 0
    assert "note: delay_ms -5.0 is negative and counts as 0" in sent.err


@pytest.mark.parametrize(
    ("words", "content"),
    [
        (["hello"], "hello"),
        (['{"a": 1}'], {"a": 1}),
        (["[1, 2]"], [1, 2]),
        (["42"], "42"),
        (["true"], "true"),
        (["42", "--content-json"], 42),
        (['"quoted"', "--content-json"], "quoted"),
        (['{"a": 1}', "--content-text"], '{"a": 1}'),
    ],
)
def test_an_object_or_array_is_json_and_all_else_is_text(cli: Cli, words: list[str], content: object) -> None:
    assert cli("send", "tester", *words).code == 0
    assert received(cli, "tester") == [content]


def test_what_only_looks_like_json_is_sent_as_text_with_a_note(cli: Cli) -> None:
    sent = cli("send", "tester", "{not json")
    assert sent.code == 0
    assert "it is sent as text" in sent.err
    assert received(cli, "tester") == ["{not json"]


def test_content_from_stdin_loses_the_newline_of_echo(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, b"two\nlines\n")
    assert cli("send", "tester", "-").code == 0
    assert received(cli, "tester") == ["two\nlines"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tester", "{", "--content-json"], "content is not sound JSON"),
        (["tester", '{"a":1,"a":2}', "--content-json"], "occurs twice"),
        (["tester", "NaN", "--content-json"], "not sound JSON"),
        (["tester", "[" * 65 + "]" * 65, "--content-json"], "nested deeper"),
        (["tester", "x", "--content-json", "--content-text"], "exclude each other"),
        (["tester", "x", "--id", ""], "id must have 1 to 128 characters"),
        (["tester", "x", "--priority", "9"], "priority must be 1"),
        (["tester", "x", "--ttl", "-1"], "ttl must be seconds"),
        (["tester", "x", "--type", "ping"], "control frame"),
        (["", "x"], "recipient is empty"),
        (["tester"], "Missing"),
    ],
)
def test_bad_input_is_a_clear_error_and_nothing_is_written(cli: Cli, words: list[str], said: str) -> None:
    sent = cli.json("send", *words)
    assert (sent.code, sent.out) == (2, "")
    assert said in sent.error["message"]
    assert received(cli, "tester") == []


def test_invalid_utf8_on_stdin_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    give_stdin(monkeypatch, b"ok \xff")
    sent = cli("send", "tester", "-")
    assert sent.code == 2
    assert "stdin is not valid UTF-8 at byte 3" in sent.err


def test_an_unknown_recipient_is_named_with_what_was_perhaps_meant(cli: Cli) -> None:
    sent = cli("send", "codr", "x")
    assert sent.code == 4
    assert sent.err.startswith("error: UNKNOWN_RECIPIENT: there is no mailbox 'codr'")
    assert "did you mean coder?" in sent.err
    assert "--create" in sent.err
    assert cli("send", "codr", "x", "--create").code == 0
    assert received(cli, "codr") == ["x"]


def test_the_first_send_makes_the_mesh(empty: Cli) -> None:
    assert empty("send", "coder", "x").code == 4
    assert not empty.path.exists()
    assert empty("send", "coder", "x", "--create").code == 0
    assert received(empty, "coder") == ["x"]


def test_an_inbox_is_listed_without_taking_anything(cli: Cli) -> None:
    cli("inbox", "coder")
    first, second = cli.json("inbox", "coder").rows
    assert (first["id"], first["from"], first["type"]) == ("bump-1", "default/planner", "task_assign")
    assert (first["state"], second["state"]) == ("ready", "delayed")
    assert (first["priority"], first["attempts"]) == (2, 0)
    assert first["content"] == {"do": "bump version"}
    shown = cli("inbox", "coder")
    header, line, _ = shown.out.splitlines()
    assert header.lower().replace("prio ", "priority ").split() == list(first)
    assert line.startswith("bump-1")
    assert '{"do":"bump version"}' in line


def test_a_subscription_has_an_inbox_too(cli: Cli) -> None:
    assert [row["id"] for row in cli.json("inbox", "order.*:audit").rows] == ["order-42"]


def test_an_empty_inbox_says_so_on_stderr(cli: Cli) -> None:
    shown = cli("inbox", "tester")
    assert (shown.code, shown.out) == (0, "")
    assert shown.err == "note: nothing waits for tester\n"


def test_a_long_inbox_says_that_there_is_more(cli: Cli) -> None:
    shown = cli.json("inbox", "coder", "--limit", "1")
    assert len(shown.rows) == 1
    assert "1 more" in shown.err


def test_taken_messages_go_back_unburned_unless_they_are_acked(cli: Cli) -> None:
    for _ in range(2):
        [row] = cli.json("inbox", "coder", "--take", "5").rows
        assert (row["id"], row["attempt"]) == ("bump-1", 1)
    assert "given back" in cli("inbox", "coder", "--take", "5").err
    assert "acked" in cli("inbox", "coder", "--take", "5", "--ack").err
    assert cli.json("inbox", "coder", "--take", "5").rows == []


def test_words_that_belong_to_take_are_refused_without_it(cli: Cli) -> None:
    assert cli("inbox", "coder", "--ack").code == 2


@pytest.mark.parametrize("words", [["inbox", "nobody"], ["inbox", "nobody", "--take", "1"]])
def test_an_unknown_inbox_is_not_made(cli: Cli, words: list[str]) -> None:
    assert cli(*words).code == 4
    assert cli(*words).code == 4


def test_content_cannot_move_the_cursor(cli: Cli) -> None:
    cli("send", "tester", "a\x1b[2Jb")
    assert "\x1b" not in cli("inbox", "tester").out


def test_a_publish_says_how_many_it_reaches(cli: Cli) -> None:
    assert cli.json("topic", "pub", "order.created", '{"order": 43}').row["targets"] == 2
    assert cli.json("topic", "pub", "order.paid", "x", "--from", "shop").row["targets"] == 1
    shown = cli("topic", "pub", "nothing.here", "x")
    assert shown.code == 0
    assert "nothing.here has no subscription" in shown.err


def test_topic_list_shows_subscriptions_and_what_waits(cli: Cli) -> None:
    rows = cli.json("topic", "list").rows
    assert [(row["topic"], row["subscription"], row["pending"]) for row in rows] == [
        ("order.created", "billing", 1),
        ("order.*", "audit", 1),
    ]
    header = cli("topic", "list").out.splitlines()[0]
    assert header.lower().split() == list(rows[0])


def test_a_mesh_without_subscriptions_says_so(empty: Cli) -> None:
    empty("send", "a", "x", "--create")
    assert "no subscriptions yet" in empty("topic", "list").err
