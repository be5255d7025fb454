"""token: made, listed, revoked and rotated on the data directory, with or without a server."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import Cli


def secret_of(text: str) -> str:
    return text.split("_", 2)[2]


def test_a_token_is_printed_once_and_never_listed(empty: Cli) -> None:
    made = empty("token", "create", "--agent", "coder", "--label", "laptop")
    assert made.code == 0
    text = made.out.strip()
    assert text.startswith("rm_")
    listed = empty("token", "list")
    assert "laptop" in listed.out
    assert "agent:coder" in listed.out
    assert secret_of(text) not in listed.out + listed.err + made.err
    assert secret_of(text) not in (empty.path / "server" / "tokens.json").read_text()


@pytest.mark.parametrize(
    ("role", "scopes"),
    [("ro", ["read"]), ("rw", ["read", "write"]), ("admin", ["admin", "read", "write"])],
)
def test_a_role_is_a_set_of_scopes(empty: Cli, role: str, scopes: list[str]) -> None:
    made = empty.json("token", "create", "--role", role)
    assert made.row["scopes"] == scopes
    assert made.row["standing"] == "valid"


def test_a_token_for_every_namespace_is_an_admin(empty: Cli) -> None:
    assert empty("token", "create", "--role", "rw", "--namespace", "*").code == 2
    assert empty("token", "create", "--role", "admin", "--namespace", "*").code == 0


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--role", "root"),
        ("--scope", "everything"),
        ("--agent", "mesh"),
        ("--agent", "a/b"),
        ("--role", "ro", "--expires", "soon"),
        ("--role", "ro", "--expires", "0s"),
        ("--role", "ro", "--namespace", "a/b"),
        ("--role", "ro", "--label", "x" * 200),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_written(empty: Cli, words: tuple[str, ...]) -> None:
    ran = empty.json("token", "create", *words)
    assert ran.code == 2
    assert ran.error["hint"]
    assert not (empty.path / "server" / "tokens.json").exists()


def test_a_revoked_token_is_listed_with_all_alone(empty: Cli) -> None:
    id = empty.json("token", "create", "--role", "ro").row["id"]
    revoked = empty.json("token", "revoke", id, "--yes")
    assert revoked.row["standing"] == "revoked"
    assert empty.json("token", "list").rows == []
    assert [row["id"] for row in empty.json("token", "list", "--all").rows] == [id]


def test_revoking_asks_first(empty: Cli) -> None:
    id = empty.json("token", "create", "--role", "ro").row["id"]
    ran = empty.json("token", "revoke", id)
    assert ran.error["code"] == "CONFIRMATION_NEEDED"
    assert empty.json("token", "list").row["standing"] == "valid"


def test_a_token_that_is_not_there_is_not_found(empty: Cli) -> None:
    made = empty.json("token", "create", "--role", "ro")
    ran = empty.json("token", "revoke", made.row["token"], "--yes")
    assert ran.code == 4
    assert secret_of(made.row["token"]) not in ran.out + ran.err


def test_rotation_leaves_both_valid_for_the_overlap(empty: Cli) -> None:
    old = empty.json("token", "create", "--role", "rw", "--label", "ci").row
    new = empty.json("token", "rotate", old["id"], "--overlap", "2h")
    assert new.code == 0
    assert new.row["replaces"] == old["id"]
    assert new.row["token"] != old["token"]
    assert old["id"] in json.loads(new.err.splitlines()[0])["note"]
    assert {row["standing"] for row in empty.json("token", "list").rows} == {"valid"}
    again = empty.json("token", "rotate", old["id"])
    assert again.code == 8
