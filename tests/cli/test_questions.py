"""ask, answer, topic sub, topic unsub."""

from __future__ import annotations

from relaymesh import Mesh
from relaymesh.cli.failure import Exit
from tests.cli.running import Cli, piped


def test_a_question_is_answered_from_the_command_line(cli: Cli) -> None:
    with Mesh(cli.path) as mesh:
        mesh.agent("planner").send("tester", "ready?", type="question", id="q-1")
        mesh.agent("planner").send("tester", "just mail")
    answered = cli.json("answer", "tester", "yes")
    assert (answered.code, answered.row["question"], answered.row["to"]) == (0, "q-1", "default/planner")
    [row] = cli.json("inbox", "planner", "--take", "1", "--ack").rows
    assert (row["type"], row["content"]) == ("answer", "yes")
    [left] = cli.json("inbox", "tester").rows
    assert (left["content"], left["attempts"]) == ("just mail", 0)


def test_a_question_is_chosen_by_its_id(cli: Cli) -> None:
    with Mesh(cli.path) as mesh:
        for number in (1, 2):
            mesh.agent("planner").send("tester", number, type="question", id=f"q-{number}")
    assert cli.json("answer", "tester", "the second", "--id", "q-2").row["question"] == "q-2"
    assert [row["id"] for row in cli.json("inbox", "tester").rows] == ["q-1"]
    missing = cli.json("answer", "tester", "again", "--id", "q-2")
    assert missing.code != 0
    assert "no message 'q-2' waits for tester" in missing.error["message"]


def test_an_answer_without_a_question_says_so(cli: Cli) -> None:
    shown = cli("answer", "tester", "42")
    assert shown.code == Exit.TIMEOUT
    assert "no question waits for tester" in shown.err


def test_a_question_that_is_not_answered_in_time_fails(cli: Cli) -> None:
    shown = cli("ask", "tester", "are you there?", "--timeout", "0.05")
    assert shown.code == Exit.TIMEOUT
    assert "did not answer" in shown.err


def test_a_question_to_a_mailbox_that_is_not_there_makes_none(cli: Cli) -> None:
    assert cli("ask", "testr", "hello", "--timeout", "0").code != 0
    assert "cli" not in {row["name"] for row in cli.json("agent", "list").rows}


def test_an_answer_that_came_meanwhile_is_printed_at_once(cli: Cli) -> None:
    assert cli("ask", "tester", "ready?", "--id", "q", "--timeout", "0.05").code == Exit.TIMEOUT
    assert cli("answer", "tester", '{"ready": true}').code == 0
    again = cli.json("ask", "tester", "ready?", "--id", "q", "--timeout", "5")
    assert (again.code, again.row["content"]) == (0, {"ready": True})


def test_a_subscription_is_made_and_ended(cli: Cli) -> None:
    made = cli.json("topic", "sub", "invoice.*", "archive", "--ordered")
    assert made.row["mailbox"] == "default/invoice.*:archive"
    assert cli.json("topic", "pub", "invoice.paid", "x").row["targets"] == 1
    assert [row["content"] for row in cli.json("inbox", "invoice.*:archive").rows] == ["x"]
    refused = piped("topic", "unsub", "invoice.*", "archive", "--dir", str(cli.path))
    assert "add --yes" in refused.err
    assert cli.json("topic", "unsub", "invoice.*", "archive", "--yes").row["dropped"] == 1
    assert cli.json("topic", "pub", "invoice.paid", "x").row["targets"] == 0
