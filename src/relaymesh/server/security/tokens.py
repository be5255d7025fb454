"""The tokens of a node: a file that the command line changes, and a view of it that the server asks.

`TokenFile` changes `tokens.json` under a lock, one process at a time, running server or not.
`Tokens` is the server's view: it looks at the file again when it has changed, at most every
`LOOK_SECONDS`, so a revocation takes effect within a second and needs no restart.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import msgspec

from relaymesh.client.discovery import TOKEN_FILE
from relaymesh.errors import Conflict, DirectoryInUse, InvalidSettings, NotFound, Unauthorized
from relaymesh.node.disk import RealLock
from relaymesh.server.security.likeness import check_unlike
from relaymesh.server.security.principal import EVERYWHERE, Principal
from relaymesh.server.security.secretfile import make_private_folder, write_private
from relaymesh.server.security.token import (
    ROLES,
    Token,
    checked_label,
    checked_namespace,
    checked_scopes,
    digest,
    id_of,
    mint,
)

LOOK_SECONDS = 0.25
LOCK_SECONDS = 5.0
LOCAL_ID = "local"
TOKENS_MAX = 10_000
KEEP_MS = 90 * 86_400_000
"""How long lists still show a token that has ended."""

log = logging.getLogger("relaymesh.server")
Clock = Callable[[], int]


def _unheard(_event: str, _id: str) -> None:
    """There is no listener."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class _Book(msgspec.Struct, kw_only=True):
    """The file's content."""

    version: int
    tokens: list[Token]


class TokenFile:
    """`tokens.json` in the server's folder, mode 0600. Every change is one atomic, synced replacement."""

    def __init__(self, folder: Path, now_ms: Clock = wall_ms) -> None:
        self.folder = folder
        self.path = folder / "tokens.json"
        self._now_ms = now_ms

    def read(self) -> list[Token]:
        """Every token that was ever made and not purged; none when there is no file yet."""
        try:
            book = msgspec.json.decode(self.path.read_bytes(), type=_Book)
        except FileNotFoundError:
            return []
        except msgspec.MsgspecError as error:
            raise InvalidSettings(
                f"{self.path} cannot be read: {error}", hint="restore it, or remove it and make new tokens"
            ) from None
        if book.version != 1:
            raise InvalidSettings(
                f"{self.path} has version {book.version}; this RelayMesh knows 1",
                hint="a newer RelayMesh wrote it: upgrade this one",
            )
        return book.tokens

    def create(
        self,
        scopes: Iterable[str],
        *,
        namespace: str = "",
        label: str = "",
        lifetime_ms: int | None = None,
        agents: Iterable[str] = (),
    ) -> tuple[Token, str]:
        """A new token and its text, which is shown only now.

        `agents`: plain names that are in use in the namespace. Raises `Conflict` for a name that looks like
        one of them, or like one that another valid token is for.
        """
        wanted = checked_scopes(scopes)
        id, text = mint()
        now = self._now_ms()
        token = Token(
            id=id,
            sha256=digest(text),
            label=checked_label(label),
            namespace=checked_namespace(namespace, wanted),
            scopes=wanted,
            created_at=now,
            expires_at=None if lifetime_ms is None else now + lifetime_ms,
        )
        with self._changing() as tokens:
            near = [t.agents for t in tokens if t.namespace == token.namespace and t.standing(now) == "valid"]
            check_unlike(token.agents, {*agents, *chain.from_iterable(near)})
            tokens.append(token)
        return token, text

    def revoke(self, id: str) -> Token:
        """End a token now. Revoking it again changes nothing."""
        with self._changing() as tokens:
            index, token = _find(tokens, id)
            if token.revoked_at is None:
                tokens[index] = token = msgspec.structs.replace(token, revoked_at=self._now_ms())
        return token

    def forget_ended(self, label: str, keep: int) -> None:
        """Remove ended tokens whose label begins so, except the newest: a program makes thousands."""
        now = self._now_ms()
        with self._changing() as tokens:
            ended = [
                each for each in tokens if each.label.startswith(label) and each.standing(now) != "valid"
            ]
            gone = {each.id for each in ended[: max(0, len(ended) - keep)]}
            tokens[:] = [each for each in tokens if each.id not in gone]

    def rotate(self, id: str, overlap_ms: int) -> tuple[Token, Token, str]:
        """A successor of the same rights; the old token ends after `overlap_ms`. Returns old, new, text.

        Two of a line are valid at once, never three: what the old token itself replaced ends now.
        """
        with self._changing() as tokens:
            now = self._now_ms()
            index, old = _find(tokens, id)
            if old.standing(now) != "valid":
                raise Conflict(f"token {id} is {old.standing(now)}", hint="make a new one: token create")
            successor = next((t.id for t in tokens if t.replaces == id and t.revoked_at is None), None)
            if successor is not None:
                raise Conflict(f"token {id} was rotated already", hint=f"rotate {successor} instead")
            for i, token in enumerate(tokens):
                if token.id == old.replaces and token.standing(now) == "valid":
                    tokens[i] = msgspec.structs.replace(token, expires_at=now)
            new_id, text = mint()
            lifetime = None if old.expires_at is None else old.expires_at - old.created_at
            new = msgspec.structs.replace(
                old,
                id=new_id,
                sha256=digest(text),
                created_at=now,
                expires_at=None if lifetime is None else now + lifetime,
                replaces=id,
            )
            end = now + overlap_ms if old.expires_at is None else min(old.expires_at, now + overlap_ms)
            tokens[index] = old = msgspec.structs.replace(old, expires_at=end)
            tokens.append(new)
        return old, new, text

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        make_private_folder(self.folder)
        lock = self._lock()
        try:
            forgotten = self._now_ms() - KEEP_MS
            tokens = [token for token in self.read() if (token.ended_at or forgotten) >= forgotten]
            yield tokens
            if len(tokens) > TOKENS_MAX:
                raise InvalidSettings(f"there are {TOKENS_MAX} tokens already", hint="revoke some, and wait")
            book = _Book(version=1, tokens=tokens)
            write_private(self.path, msgspec.json.format(msgspec.json.encode(book)) + b"\n")
        finally:
            lock.release()

    def _lock(self) -> RealLock:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                return RealLock(self.folder / "tokens.lock")
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DirectoryInUse(
                        "another process is changing the tokens and does not end",
                        hint="wait for the other relaymesh token command, or stop it",
                    ) from None
                time.sleep(0.01)


def _find(tokens: list[Token], id: str) -> tuple[int, Token]:
    for index, token in enumerate(tokens):
        if token.id == id:
            return index, token
    raise NotFound(
        "there is no token of that id", hint="relaymesh token list shows the ids; an id is not the token"
    )


class Tokens:
    """The tokens as the server sees them, and the local one, which is valid for one run of the server."""

    def __init__(self, folder: Path, *, now_ms: Clock = wall_ms) -> None:
        self._file = TokenFile(folder, now_ms)
        self._now_ms = now_ms
        self._local: Token | None = None
        self.on_change: Callable[[str, str], None] = _unheard
        """Told `token.created` or `token.revoked`, and the id, when the file has changed."""
        self._look_again = 0.0
        self._seen = self._signature()
        self._known = {token.id: token for token in self._file.read()}

    @property
    def local_path(self) -> Path:
        return self._file.folder / TOKEN_FILE

    def make_local(self) -> None:
        """A new `local.token`: admin of everything, for processes that can read this user's files."""
        make_private_folder(self._file.folder)
        id, text = mint(LOCAL_ID)
        self._local = Token(
            id=id,
            sha256=digest(text),
            label="processes of the same user",
            namespace=EVERYWHERE,
            scopes=tuple(sorted(ROLES["admin"])),
            created_at=self._now_ms(),
        )
        write_private(self.local_path, text.encode())

    def drop_local(self) -> None:
        """The end of this run: its local token is no longer valid."""
        self._local = None
        self.local_path.unlink(missing_ok=True)

    def authenticate(self, text: str) -> Principal:
        """The principal of a token's text. A refusal never repeats it, and names the id at most."""
        self.refresh()
        id = id_of(text)
        token = None if id is None else self._token(id)
        if token is None and id is not None:
            self._look_again = 0.0  # it may have been made a moment ago: one look at the file's signature
            self.refresh()
            token = self._token(id)
        # Compared also when there is none, so that the time does not tell which ids exist.
        kept = token.sha256 if token is not None else "0" * 64
        same = hmac.compare_digest(digest(text), kept)
        if token is None or not same:
            raise Unauthorized("the token is not known to this node")
        standing = token.standing(self._now_ms())
        if standing != "valid":  # said only to a client that has the whole token
            raise Unauthorized(f"token {token.id} is {standing}", hint="relaymesh token create makes one")
        return token.principal()

    def is_valid(self, id: str) -> bool:
        """Whether a token that was good at the start of a connection still is."""
        token = self._token(id)
        return token is not None and token.standing(self._now_ms()) == "valid"

    def refresh(self) -> None:
        """Read the file again if it has changed; cheap enough for every request."""
        now = time.monotonic()
        if now < self._look_again:
            return
        self._look_again = now + LOOK_SECONDS
        signature = self._signature()
        if signature == self._seen:
            return
        self._seen = signature
        try:
            found = {token.id: token for token in self._file.read()}
        except (InvalidSettings, OSError) as error:
            # It may say that one of them is revoked: none is valid until it can be read again.
            self._known = {}
            log.error("no token but the local one is valid now: %s", error)
            return
        before, self._known = self._known, found
        for id, token in found.items():
            if id not in before:
                self.on_change("token.created", id)
            elif token.revoked_at is not None and before[id].revoked_at is None:
                self.on_change("token.revoked", id)

    def _token(self, id: str) -> Token | None:
        if self._local is not None and id == LOCAL_ID:
            return self._local
        return self._known.get(id)

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            status = self._file.path.stat()
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
