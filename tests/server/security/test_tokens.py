"""Tokens: shown once, kept as a hash, ended by expiry and revocation, rotated with two valid at once."""

from __future__ import annotations

import hmac
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relaymesh.errors import Conflict, DirectoryInUse, InvalidSettings, NotFound, Unauthorized
from relaymesh.node.disk import RealLock
from relaymesh.server.security import tokens as tokens_module
from relaymesh.server.security.secretfile import write_private
from relaymesh.server.security.token import digest, id_of, mint
from relaymesh.server.security.tokens import TokenFile, Tokens

HOUR = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path, clock: Clock) -> TokenFile:
    return TokenFile(tmp_path / "server", clock)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server looks at the file at every call."""
    monkeypatch.setattr(tokens_module, "LOOK_SECONDS", 0.0)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_has_256_random_bits_and_names_itself() -> None:
    texts = {mint()[1] for _ in range(200)}
    assert len(texts) == 200
    for text in texts:
        prefix, id, secret = text.split("_", 2)
        assert prefix == "rm"
        assert id_of(text) == id
        assert len(secret) == 43  # 32 bytes in base64


def test_only_the_hash_is_kept_and_the_file_is_private(file: TokenFile) -> None:
    token, text = file.create(["read"])
    kept = file.path.read_text()
    assert text not in kept
    assert text.split("_", 2)[2] not in kept
    assert digest(text) in kept
    assert mode(file.path) == 0o600
    assert mode(file.folder) == 0o700
    assert [path.name for path in file.folder.iterdir() if path.name.startswith(".")] == []
    assert token.id in kept


def test_a_token_is_known_by_its_whole_text(file: TokenFile, clock: Clock) -> None:
    token, text = file.create(["agent:coder", "read"], namespace="team", label="laptop")
    principal = Tokens(file.folder, now_ms=clock).authenticate(text)
    assert principal.token_id == token.id
    assert (principal.label, principal.namespace) == ("laptop", "team")
    assert principal.scopes == {"agent:coder", "read"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: "x" * 100_000,
        lambda text: text[:-1],
        lambda text: text + "A",
        lambda text: text[:-1] + ("A" if text[-1] != "A" else "B"),
        lambda text: text.upper(),
        lambda text: "rm_" + "a" * 8 + text[11:],
        lambda text: text.replace("rm_", "rm-"),
        lambda text: text + "\n",
        lambda text: "é" + text,
    ],
)
def test_anything_but_the_whole_text_is_refused_without_being_repeated(
    file: TokenFile, clock: Clock, spoil: object
) -> None:
    _, text = file.create(["read"])
    wrong = spoil(text)  # type: ignore[operator]
    with pytest.raises(Unauthorized) as caught:
        Tokens(file.folder, now_ms=clock).authenticate(wrong)
    assert not caught.value.authenticated
    assert text.split("_", 2)[2] not in str(caught.value)


def test_the_comparison_takes_constant_time_also_for_an_unknown_id(
    file: TokenFile, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, text = file.create(["read"])
    compared: list[tuple[str, str]] = []
    real = hmac.compare_digest

    def spied(one: str, other: str) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", spied)
    tokens = Tokens(file.folder, now_ms=clock)
    tokens.authenticate(text)
    with pytest.raises(Unauthorized):
        tokens.authenticate(mint()[1])
    assert [len(a) == len(b) == 64 for a, b in compared] == [True, True]


def test_a_token_expires(file: TokenFile, clock: Clock) -> None:
    _, text = file.create(["read"], lifetime_ms=HOUR)
    tokens = Tokens(file.folder, now_ms=clock)
    tokens.authenticate(text)
    clock.ms += HOUR
    with pytest.raises(Unauthorized, match="expired"):
        tokens.authenticate(text)


def test_a_revocation_takes_effect_without_a_restart(file: TokenFile, clock: Clock, seen: None) -> None:
    token, text = file.create(["read"])
    tokens = Tokens(file.folder, now_ms=clock)
    tokens.authenticate(text)
    file.revoke(token.id)
    with pytest.raises(Unauthorized, match="revoked"):
        tokens.authenticate(text)
    assert not tokens.is_valid(token.id)


def test_a_new_token_is_known_without_a_restart(file: TokenFile, clock: Clock, seen: None) -> None:
    tokens = Tokens(file.folder, now_ms=clock)
    _, text = file.create(["read"])
    tokens.authenticate(text)


def test_the_file_is_looked_at_again_within_a_second() -> None:
    assert tokens_module.LOOK_SECONDS <= 0.5


def test_revoking_twice_changes_nothing(file: TokenFile, clock: Clock) -> None:
    token, _ = file.create(["read"])
    first = file.revoke(token.id)
    clock.ms += HOUR
    assert file.revoke(token.id) == first


def test_what_is_not_there_cannot_be_revoked(file: TokenFile) -> None:
    _, text = file.create(["read"])
    with pytest.raises(NotFound) as caught:
        file.revoke(text)  # the token itself, by mistake
    assert text not in str(caught.value)


def test_rotation_leaves_two_valid_for_the_overlap(file: TokenFile, clock: Clock) -> None:
    first, old_text = file.create(["agent:coder"], namespace="team", label="ci")
    old, new, new_text = file.rotate(first.id, HOUR)
    tokens = Tokens(file.folder, now_ms=clock)
    assert tokens.authenticate(old_text).scopes == tokens.authenticate(new_text).scopes
    assert tokens.authenticate(new_text).namespace == "team"
    assert (old.id, new.replaces) == (first.id, first.id)
    clock.ms += HOUR
    tokens.authenticate(new_text)
    with pytest.raises(Unauthorized, match="expired"):
        tokens.authenticate(old_text)


def test_never_three_of_a_line_are_valid(file: TokenFile, clock: Clock) -> None:
    first, first_text = file.create(["read"])
    _, second, _ = file.rotate(first.id, HOUR)
    with pytest.raises(Conflict, match="rotated already"):
        file.rotate(first.id, HOUR)
    file.rotate(second.id, HOUR)
    valid = [token for token in file.read() if token.standing(clock.ms) == "valid"]
    assert len(valid) == 2
    with pytest.raises(Unauthorized):
        Tokens(file.folder, now_ms=clock).authenticate(first_text)


def test_rotation_does_not_prolong_the_old_token(file: TokenFile, clock: Clock) -> None:
    token, _ = file.create(["read"], lifetime_ms=HOUR)
    old, new, _ = file.rotate(token.id, 24 * HOUR)
    assert old.expires_at == token.expires_at
    assert new.expires_at == clock.ms + HOUR


def test_an_ended_token_cannot_be_rotated(file: TokenFile) -> None:
    token, _ = file.create(["read"])
    file.revoke(token.id)
    with pytest.raises(Conflict, match="revoked"):
        file.rotate(token.id, HOUR)


@pytest.mark.parametrize(
    ("scopes", "namespace"),
    [
        ([], ""),
        (["root"], ""),
        (["agent:"], ""),
        (["agent"], ""),
        (["agent:mesh"], ""),
        (["agent:system"], ""),
        (["agent:a/b"], ""),
        (["write"], "*"),
        (["agent:coder"], "*"),
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(file: TokenFile, scopes: list[str], namespace: str) -> None:
    with pytest.raises((InvalidSettings, ValueError, Exception)) as caught:
        file.create(scopes, namespace=namespace)
    assert caught.type.__module__ == "relaymesh.errors"
    assert file.read() == []


def test_a_label_cannot_hold_a_token(file: TokenFile) -> None:
    with pytest.raises(InvalidSettings) as caught:
        file.create(["read"], label=mint()[1])
    assert "rm_" not in str(caught.value)


def test_a_file_that_cannot_be_read_lets_nobody_in(file: TokenFile, clock: Clock, seen: None) -> None:
    _, text = file.create(["read"])
    tokens = Tokens(file.folder, now_ms=clock)
    tokens.make_local()
    local = tokens.local_path.read_text()
    file.path.write_text('{"version": 1, "tokens": [')
    with pytest.raises(Unauthorized):
        tokens.authenticate(text)
    tokens.authenticate(local)
    with pytest.raises(InvalidSettings):
        Tokens(file.folder, now_ms=clock)


def test_the_local_token_is_private_new_at_each_start_and_gone_at_the_end(
    tmp_path: Path, clock: Clock
) -> None:
    tokens = Tokens(tmp_path / "server", now_ms=clock)
    tokens.make_local()
    first = tokens.local_path.read_text()
    assert mode(tokens.local_path) == 0o600
    assert tokens.authenticate(first).everywhere
    again = Tokens(tmp_path / "server", now_ms=clock)
    again.make_local()
    second = again.local_path.read_text()
    assert first != second
    with pytest.raises(Unauthorized):
        again.authenticate(first)
    again.drop_local()
    assert not again.local_path.exists()
    with pytest.raises(Unauthorized):
        again.authenticate(second)


def test_a_failed_write_leaves_the_old_file_and_no_draft(
    file: TokenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.create(["read"])
    before = file.path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("relaymesh.server.security.secretfile.os.fsync", full)
    with pytest.raises(OSError, match="space"):
        file.create(["write"])
    assert file.path.read_bytes() == before
    assert sorted(path.name for path in file.folder.iterdir()) == ["tokens.json", "tokens.lock"]


def test_two_processes_that_create_at_once_both_succeed(file: TokenFile) -> None:
    program = (
        "import sys; from pathlib import Path; from relaymesh.server.security.tokens import TokenFile\n"
        "for _ in range(10): TokenFile(Path(sys.argv[1])).create(['read'])"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(file.folder)]) for _ in range(2)]
    assert [process.wait(60) for process in running] == [0, 0]
    assert len({token["id"] for token in json.loads(file.path.read_bytes())["tokens"]}) == 20


def test_a_lock_that_is_never_let_go_is_said(file: TokenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "LOCK_SECONDS", 0.05)
    file.create(["read"])
    held = RealLock(file.folder / "tokens.lock")
    with pytest.raises(DirectoryInUse):
        file.create(["read"])
    held.release()


def test_tokens_that_ended_long_ago_are_forgotten(file: TokenFile, clock: Clock) -> None:
    gone, _ = file.create(["read"])
    stays, _ = file.create(["read"])
    file.revoke(gone.id)
    clock.ms += tokens_module.KEEP_MS + 1
    file.create(["write"])
    ids = [token.id for token in file.read()]
    assert gone.id not in ids
    assert stays.id in ids


def test_a_private_file_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    real = Path.replace

    def spied(self: Path, target: Path) -> Path:
        modes.append(mode(self))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", spied)
    write_private(tmp_path / "secret", b"x")
    assert modes == [0o600]


def test_a_token_is_known_as_soon_as_it_was_made(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    with pytest.raises(Unauthorized):
        tokens.authenticate(mint()[1])  # it has looked at the file just now
    _, text = TokenFile(tmp_path).create(["read"])
    assert "read" in tokens.authenticate(text).scopes
