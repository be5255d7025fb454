"""dlq: looking at dead letters, sending them back, removing them."""

from __future__ import annotations

import json
import time

import pytest

from relaymesh.cli.table import short_id
from relaymesh.sdk.mesh import Mesh
from tests.cli.running import Cli, on_terminal


def ids(cli: Cli, *words: str) -> list[str]:
    return [row["message_id"] for row in cli.json("dlq", "list", *words).rows]


def test_dead_letters_are_listed_with_why_they_died(cli: Cli) -> None:
    rows = cli.json("dlq", "list").rows
    assert [row["message_id"] for row in rows] == ["dead-0", "dead-1", "dead-2"]
    assert rows[0]["receiver"] == "default/coder"
    assert (rows[0]["reason"], rows[0]["code"], rows[0]["attempts"]) == ("not_retryable", "bad_patch", 1)
    assert rows[0]["error"] == "ValueError: no such line 0"
    header = cli("dlq", "list").out.splitlines()[0]
    assert header.lower().split() == list(rows[0])


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--code", "timeout"], ["dead-2"]),
        (["--receiver", "coder"], ["dead-0", "dead-1", "dead-2"]),
        (["--receiver", "tester"], []),
        (["--sender", "planner", "--limit", "2"], ["dead-0", "dead-1"]),
        (["--reason", "ttl_expired"], []),
        (["--since", "1h"], ["dead-0", "dead-1", "dead-2"]),
        (["--since", "2999-01-01"], []),
    ],
)
def test_the_list_can_be_narrowed_down(cli: Cli, words: list[str], found: list[str]) -> None:
    assert ids(cli, *words) == found


def test_a_time_that_is_none_is_a_usage_error(cli: Cli) -> None:
    assert cli("dlq", "list", "--since", "yesterday").code == 2


def test_show_has_the_message_and_every_attempt(cli: Cli) -> None:
    letter = cli.json("dlq", "show", "dead-1").row
    assert letter["message"]["content"] == {"number": 1}
    [failure] = letter["failures"]
    assert (failure["attempt"], failure["code"]) == (1, "bad_patch")
    assert "raise ValueError" in failure["stack_trace"]
    shown = cli("dlq", "show", "dead-1").out
    for word in ("dead-1", '{"number":1}', "attempt 1", "code: bad_patch", "no such line 1", "| Traceback"):
        assert word in shown


def test_a_part_of_an_id_is_enough_where_it_is_clear(cli: Cli) -> None:
    assert cli.json("dlq", "show", "ad-2").row["message_id"] == "dead-2"
    assert cli.json("dlq", "show", "…ad-2").row["message_id"] == "dead-2"
    assert cli.json("dlq", "show", "de…-2").row["message_id"] == "dead-2"
    for id in ("nothing", "d-2", "…"):
        missing = cli.json("dlq", "show", id)
        assert (missing.code, missing.error["code"]) == (4, "NOT_FOUND")


def test_a_part_that_fits_several_is_refused(cli: Cli) -> None:
    refused = cli("dlq", "show", "dead")
    assert refused.code == 2
    assert "'dead' fits 3 messages" in refused.err


def test_what_the_table_shows_of_an_id_is_enough(cli: Cli) -> None:
    with Mesh(cli.path) as mesh:
        tester = mesh.agent("tester")
        receipts = tester.send_many([{"to": "tester", "content": number} for number in range(5)])
        for delivery in tester.receive_many(5, timeout=5):
            delivery.nack(retryable=False)
    for receipt in receipts:
        assert cli.json("dlq", "show", short_id(receipt.id)).row["message_id"] == receipt.id


def test_ids_are_redriven_at_once_and_only_once(cli: Cli) -> None:
    first = cli.json("dlq", "redrive", "dead-0").row
    assert (first["to"], first["outcome"]) == ("default/coder", "redriven")
    again = cli.json("dlq", "redrive", "dead-0").row
    assert (again["sequence"], again["outcome"]) == (None, "was redriven before")
    assert ids(cli) == ["dead-1", "dead-2"]
    assert ids(cli, "--redriven") == ["dead-0", "dead-1", "dead-2"]
    assert "redriven" in cli("dlq", "redrive", "dead-0").out


def test_a_redrive_may_be_edited_and_go_elsewhere(cli: Cli) -> None:
    row = cli.json("dlq", "redrive", "dead-0", "--edit", '{"number": "zero"}', "--to", "tester").row
    with Mesh(cli.path) as mesh:
        delivery = mesh.agent("tester").receive(timeout=5)
        assert delivery.content == {"number": "zero"}
        assert (delivery.envelope.origin, delivery.id) == ("dead-0", row["redriven_as"])
    assert cli("dlq", "redrive", "dead-1", "--to", "nobody").code == 4
    assert cli("dlq", "redrive", "dead-1", "--edit", "{").code == 2


def test_null_is_content_too(cli: Cli) -> None:
    cli("dlq", "redrive", "dead-0", "--edit", "null", "--to", "tester")
    assert [row["content"] for row in cli.json("inbox", "tester").rows] == [None]


def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    ran = cli.json("dlq", "redrive", "--all", "--dry-run")
    assert [row["outcome"] for row in ran.rows] == ["would be redriven"] * 3
    assert cli.json("dlq", "purge", "--all", "--dry-run").row["purged"] == 0
    assert len(ids(cli)) == 3


def test_a_bulk_redrive_without_a_terminal_names_yes(cli: Cli) -> None:
    refused = cli("dlq", "redrive", "--all")
    assert refused.code == 2
    assert "about to redrive 3 dead letters" in refused.err
    assert "no such line 0" in refused.err
    last = refused.err.splitlines()[-1]
    assert last.startswith("error: CONFIRMATION_NEEDED")
    assert "--yes" in last
    assert len(ids(cli)) == 3


def test_a_bulk_redrive_does_what_fits(cli: Cli) -> None:
    ran = cli.json("dlq", "redrive", "--filter", "code=bad_patch", "--filter", "receiver=coder", "--yes")
    assert [row["message_id"] for row in ran.rows] == ["dead-0", "dead-1"]
    assert ids(cli) == ["dead-2"]
    nothing = cli("dlq", "redrive", "--filter", "code=nope", "--yes")
    assert nothing.code == 0
    assert "nothing to do" in nothing.err


def test_a_bulk_redrive_keeps_to_its_rate(cli: Cli) -> None:
    began = time.monotonic()
    assert cli("dlq", "redrive", "--all", "--yes", "--rate", "5").code == 0
    assert time.monotonic() - began >= 0.4  # three, one every 200 ms


def test_a_redrive_that_stops_half_way_says_how_far_it_came(cli: Cli) -> None:
    with Mesh(cli.path) as mesh:
        mesh.agent("tester", capacity=2)
    ran = cli.json("dlq", "redrive", "--all", "--yes", "--to", "tester", "--rate", "10")
    assert ran.code == 7
    assert len(ran.rows) == 2
    assert (ran.error["code"], ran.error["retryable"]) == ("PARTIAL", True)
    assert "2 of 3" in ran.error["message"]
    assert "MAILBOX_FULL" in ran.error["message"]
    assert cli.json("inbox", "tester", "--take", "2", "--ack").code == 0
    rest = cli.json("dlq", "redrive", "--all", "--yes", "--to", "tester")
    assert [row["message_id"] for row in rest.rows] == ["dead-2"]


@pytest.mark.parametrize("verb", ["redrive", "purge"])
@pytest.mark.parametrize(
    "words", [[], ["--all", "dead-0"], ["--all", "--filter", "code=x"], ["--filter", "colour=red"]]
)
def test_which_letters_are_meant_must_be_said(cli: Cli, verb: str, words: list[str]) -> None:
    given = [*words, "--yes"] + (["--reason", "test"] if verb == "purge" else [])
    assert cli("dlq", verb, *given).code == 2
    assert len(ids(cli)) == 3


def test_a_purge_needs_a_reason_and_a_yes(cli: Cli) -> None:
    assert "--reason TEXT" in cli("dlq", "purge", "--all", "--yes").err
    unsure = cli("dlq", "purge", "--all", "--reason", "tested")
    assert unsure.code == 2
    assert "--yes" in unsure.err
    assert len(ids(cli)) == 3


def test_a_purge_is_logged_with_its_reason(cli: Cli) -> None:
    ran = cli.json("dlq", "purge", "dead-0", "ad-1", "--reason", "duplicates of 7", "--yes")
    assert (ran.code, ran.row["purged"], ran.row["reason"]) == (0, 2, "duplicates of 7")
    notes = [json.loads(line)["note"] for line in ran.err.splitlines()]
    assert any("purged 2 dead letters: duplicates of 7" in note for note in notes)
    assert ids(cli) == ["dead-2"]
    assert "purged" in cli("dlq", "purge", "--all", "--reason", "rest", "--yes").out


def test_the_reason_of_a_purge_is_not_mistaken_for_a_filter(cli: Cli) -> None:
    refused = cli("dlq", "purge", "--all", "--reason", "ttl_expired", "--yes")
    assert refused.code == 2
    assert "--filter reason=ttl_expired" in refused.err
    assert len(ids(cli)) == 3


def test_no_dead_letters_is_good_news(empty: Cli) -> None:
    empty("send", "a", "x", "--create")
    assert empty("dlq", "list").err == "note: no dead letters: nothing to do\n"


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, 3), ("y\n", 0, 0)])
def test_somebody_at_a_terminal_is_asked(cli: Cli, answer: str, code: int, left: int) -> None:
    ended, seen = on_terminal("dlq", "redrive", "--all", "--dir", str(cli.path), answer=answer)
    assert ended == code
    assert "redrive 3 dead letters? [y/N]" in seen
    assert ("CANCELLED" in seen) == (code == 1)
    assert len(ids(cli)) == left
