"""The checker of `relaymesh torture`: it fires on every rule, and on nothing that is allowed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from relaymesh.testing.torture import checker
from relaymesh.testing.torture.checker import Account, Books, Findings, Standing, judge

SOUND = """
I a box k 1 da 0 2 ok 0 1000 1000
I b box k 2 db 0 2 ok 0 1000 1000
R a 10 0 1
R b 11 0 1
H a box 10 1 0.1.1 da 400 2000 2000 2000
T a box 0.1.1 -
S a box 0.1.1 acked 2010
H b box 11 1 0.1.2 db 400 2020 2020 2020
T b box 0.1.2 -
S b box 0.1.2 acked 2030
Z box 2 2 0 0 0
"""
QUESTION = """
I q box - 3 dq 0 9 ok 0 1000 1000
R q 12 0 1
H q box 12 1 0.1.3 dq 400 2000 2000 2000
I re-q out - 0 dr 0 9 reply-0.1.3 0 2000 2000
T q box 0.1.3 re-q
Z box 3 3 0 0 0
"""
REPLY = """
H re-q out 13 1 0.1.4 dr 400 2020 2020 2020
T re-q out 0.1.4 -
S re-q out 0.1.4 acked 2025
Z out 1 1 0 0 0
"""


def found(text: str, standing: Standing | None = None, later: str = "") -> Findings:
    """The verdict on the ledger of one run, and of a second one."""
    books = Books()
    for run, lines in enumerate([text, later], start=1):
        books.read(run, [f"{line}\n" for line in lines.splitlines() if line])
    return judge(books, standing)


def without(*beginnings: str) -> str:
    return "\n".join(line for line in SOUND.splitlines() if not line.startswith(beginnings))


def test_sound_books_break_nothing() -> None:
    verdict = found(SOUND)
    assert (dict(verdict.broken), verdict.words) == ({}, [])
    assert (verdict.messages, verdict.deliveries, verdict.duplicates) == (2, 2, 0)


BAD = {
    "a receipted message is never delivered": (without("H b", "T b", "S b"), ["lost"]),
    "a delivered message vanishes before anybody settled it": (without("T b", "S b"), ["lost"]),
    "a message is gone although its settle was refused": (
        SOUND.replace("0.1.2 acked 2030", "0.1.2 lost 2030"),
        ["lost"],
    ),
    "a message is gone although it was to be retried": (
        without("T b", "S b") + "\nS b box 0.1.2 retrying 2030",
        ["lost"],
    ),
    "a publish reached one of two mailboxes": (
        without("I b") + "\nI b box,other k 2 db 0 2 ok 0 1000 1000",
        ["lost", "lost"],
    ),
    "a question is settled and its reply is nowhere": (SOUND + QUESTION, ["lost"]),
    "a message nobody sent": (
        SOUND + "H c box 12 1 0.1.3 dc 0 2040 2040 2040\nT c box 0.1.3 -",
        ["phantom"],
    ),
    "a message in a mailbox it was not sent to": (
        SOUND + "H a other 10 1 0.1.3 da 0 2040 2040 2040\nT a other 0.1.3 -",
        ["phantom"],
    ),
    "a dead letter nobody sent": (SOUND + "L c box not_retryable 1 dc", ["phantom"]),
    "a message that was refused": (without("R b") + "\nX b", ["phantom"]),
    "content or key changed": (SOUND.replace("0.1.2 db 400", "0.1.2 dx 400"), ["phantom"]),
    "content of a dead letter changed": (
        without("H b", "T b", "S b", "I b", "Z")
        + "\nI b box k 2 db 0 2 poison 0 1000 1000\nL b box retries_exhausted 3 dx\nZ box 2 1 0 1 0",
        ["phantom"],
    ),
    "the second of a lane is first": (
        SOUND.replace("0.1.1", "0.1.9"),
        ["disorder"],
    ),
    "a lane goes on past one that is still to come again": (
        SOUND.replace("acked", "lost")
        + "H b box 11 2 0.1.3 db 0 2500 2500 2500\n"
        + "H a box 10 2 0.1.4 da 0 2500 2500 2500\nT a box 0.1.4 -\n"
        + "H b box 11 3 0.1.5 db 0 2500 2500 2500\nT b box 0.1.5 -",
        ["disorder"],
    ),
    "acceptance does not follow the sender": (
        SOUND.replace("R a 10", "R a 12").replace("H a box 10", "H a box 12"),
        ["disorder"],
    ),
    "a delayed message comes early": (
        SOUND.replace("I b box k 2 db 0", "I b box k 2 db 1500"),
        ["early"],
    ),
    "a token is given twice": (SOUND.replace("0.1.2", "0.1.1"), ["token"]),
    "a sequence is given twice": (
        SOUND.replace("R b 11", "R b 10").replace("H b box 11", "H b box 10"),
        ["token"],
    ),
    "a settle after the end of the lease is accepted": (
        SOUND.replace("0.1.2 acked 2030", "0.1.2 acked 2430"),
        ["stale"],
    ),
    "a nack after the end of the lease is accepted": (
        without("T b", "S b")
        + "\nS b box 0.1.2 retrying 2430\n"
        + "H b box 11 2 0.1.3 db 0 2500 2500 2500\nT b box 0.1.3 -",
        ["stale"],
    ),
    "tried more often than allowed": (
        SOUND.replace("H b box 11 1 ", "H b box 11 4 "),
        ["attempts"],
    ),
    "an attempt is not counted": (
        without("T b", "S b")
        + "\nS b box 0.1.2 retrying 2030\n"
        + "H b box 11 1 0.1.3 db 0 2500 2500 2500\nT b box 0.1.3 -",
        ["attempts"],
    ),
    "dead before its attempts are used up": (
        without("T b", "S b", "I b", "Z")
        + "\nI b box k 2 db 0 2 poison 0 1000 1000\nL b box retries_exhausted 2 db\nZ box 2 1 0 1 0",
        ["attempts"],
    ),
    "dead without a cause": (
        without("T b", "S b", "Z") + "\nL b box retries_exhausted 3 db\nZ box 2 1 0 1 0",
        ["attempts"],
    ),
    "one id under two sequences": (
        without("T b", "S b") + "\nH b box 12 2 0.1.3 db 0 2500 2500 2500\nT b box 0.1.3 -",
        ["twice"],
    ),
    "one id receipted as new twice": (SOUND + "A b\nR b 11 0 1", ["twice"]),
    "delivered again after an answered ack": (
        SOUND + "H b box 11 2 0.1.3 db 0 2500 2500 2500\nT b box 0.1.3 -",
        ["came_back"],
    ),
    "a question is delivered again after its reply arrived": (
        SOUND + QUESTION + REPLY + "H q box 12 2 0.1.5 dq 0 2500 2500 2500\nT q box 0.1.5 -",
        ["came_back"],
    ),
    "the books do not balance": (SOUND.replace("Z box 2 2 0 0 0", "Z box 2 1 0 0 0"), ["balance"]),
    "something is pending after the drain": (
        SOUND.replace("Z box 2 2 0 0 0", "Z box 2 1 0 0 1"),
        ["balance"],
    ),
    "more accepted than was sent": (SOUND.replace("Z box 2 2 0 0 0", "Z box 3 3 0 0 0"), ["balance"]),
    "nothing was drained": (without("Z"), ["balance"]),
    "a worker saw an error": (SOUND + "F CONFLICT for the same content again", ["errors"]),
}


@pytest.mark.parametrize(("text", "broken"), BAD.values(), ids=BAD)
def test_the_checker_finds_it_and_nothing_else(text: str, broken: list[str]) -> None:
    verdict = found(text)
    assert sorted(verdict.broken.elements()) == broken, verdict.words
    assert len(verdict.words) == len(broken)


def test_every_rule_has_a_bad_ledger() -> None:
    assert {rule for _, broken in BAD.values() for rule in broken} == set(checker.RULES)


def test_a_token_that_goes_back_in_a_later_run_is_found() -> None:
    lost = SOUND.replace("0.1.2 acked 2030", "0.1.2 lost 2030").replace("0.1.", "0.2.")
    again = "H b box 11 2 0.1.9 db 0 2500 2500 2500\nT b box 0.1.9 -"
    assert found(lost, later=again).broken["token"] == 1
    assert found(lost.replace("0.2.", "0.0."), later=again).broken["token"] == 0


def test_runs_that_were_there_together_are_given_tokens_beside_each_other() -> None:
    """A delivery may be seen after the other run's last one, and have been granted before it."""
    lost = SOUND.replace("0.1.2 acked 2030", "0.1.2 lost 2030").replace("0.1.", "0.2.")
    sent = "I c box - 5 dc 0 9 ok 0 2010 2010\nR c 12 0 1\n"
    again = "H b box 11 2 0.1.9 db 0 2021 2021 2021\nT b box 0.1.9 -"
    assert found(lost, later=again).broken["token"] == 1
    assert found(lost, later=sent + again).broken["token"] == 0


def test_a_round_is_judged_by_where_the_last_one_ended() -> None:
    standing = Standing(token=(0, 5, 1), sequence=50, accounts={"box": Account(2, 2, 0, 0, 0)})
    verdict = found(SOUND, standing)
    assert dict(verdict.broken) == {"token": 3, "balance": 1}
    assert standing.token == (0, 5, 1)
    assert standing.accounts["box"].accepted == 2


RUN_AGAIN = """
H a box 10 2 0.2.1 da 0 2500 2500 2500
T a box 0.2.1 -
H b box 11 2 0.2.2 db 0 2500 2500 2500
T b box 0.2.2 -
"""
ALLOWED = {
    "a redelivery in a later run": (
        without("T b", "S b"),
        "H b box 11 2 0.2.1 db 400 2500 2500 2500\nT b box 0.2.1 -\nS b box 0.2.1 acked 2510",
    ),
    "a whole run of a lane again, in order": (without("T", "S"), RUN_AGAIN),
    "a kill between an ack and its answer": (without("S b"), ""),
    "a late settle that was refused": (
        SOUND.replace("0.1.2 acked 2030", "0.1.2 lost 2430"),
        "H b box 11 2 0.2.1 db 0 2500 2500 2500\nT b box 0.2.1 -",
    ),
    "a send whose outcome is not known, and that arrived": (without("R b"), ""),
    "the same id again, with the old receipt": (SOUND + "A b\nR b 11 1 1", ""),
    "a question and its reply, the answer to the settle unheard": (SOUND + QUESTION + REPLY, ""),
    "an answer that was there before a late holder of its question meant to give it": (
        SOUND
        + "I q box - 3 dq 0 9 ok 0 1000 1000\nR q 12 0 1\nH q box 12 1 0.1.3 dq 400 2000 2000 2000\n"
        + "I re-q out - 0 dx 0 9 reply-0.1.3 0 2900 2900\nT q box 0.1.3 re-q\nS q box 0.1.3 lost 2900\n"
        + "Z box 3 3 0 0 0",
        (
            "H q box 12 2 0.2.1 dq 400 2500 2500 2500\nI re-q out - 0 dr 0 9 reply-0.2.1 0 2500 2500\n"
            "T q box 0.2.1 re-q\nS q box 0.2.1 answered 2500\nR re-q 13 0 1\n"
            "H re-q out 13 1 0.2.2 dr 400 2520 2520 2520\nT re-q out 0.2.2 -\nS re-q out 0.2.2 acked 2525\n"
            "Z out 1 1 0 0 0"
        ),
    ),
    "a delay that is over by the wall clock, which was set": (
        SOUND.replace("I b box k 2 db 0", "I b box k 2 db 5000").replace("2020 2020 2020", "2020 2020 9000"),
        "",
    ),
}


@pytest.mark.parametrize(("text", "later"), ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_is_no_fault(text: str, later: str) -> None:
    verdict = found(text, later=later)
    assert verdict.words == []


def test_a_refused_late_settle_and_a_redelivery_are_counted() -> None:
    text, later = ALLOWED["a late settle that was refused"]
    verdict = found(text, later=later)
    assert (verdict.stale_refused, verdict.duplicates) == (1, 1)


def test_a_line_that_the_kill_cut_short_says_nothing() -> None:
    books = Books()
    books.read(1, ["X a\n", "X b"])
    assert books.refused == {"a"}


def test_the_checker_shares_no_code_with_the_product() -> None:
    tree = ast.parse(Path(checker.__file__).read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)
    assert not any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def test_it_runs_alone_on_a_folder_of_ledgers(tmp_path: Path) -> None:
    (tmp_path / "000001.001").write_text(SOUND.strip() + "\n", encoding="ascii")
    (tmp_path / "stderr-000001").write_text("not a ledger", encoding="ascii")
    command = [sys.executable, "-I", "-S", checker.__file__, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, json.loads(ran.stdout)["messages"]) == (0, 2)
    (tmp_path / "000002.001").write_text("F oh\n", encoding="ascii")
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, json.loads(ran.stdout)["broken"]) == (1, {"errors": 1})
