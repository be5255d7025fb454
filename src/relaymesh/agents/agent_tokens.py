"""The token of each agent: it can act as that agent only, and is valid for a short time.

The text of the token is in a file that only its owner may read. Each start puts it into the environment of
the process from there (a secret by reference), so it is in no declaration, no argument and no log. The token
is renewed after half of its validity and revoked when the agent stops. The next supervisor revokes the tokens
that a killed supervisor left.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from relaymesh.errors import MeshError
from relaymesh.modes import replace_file
from relaymesh.server.security.tokens import TokenFile

__all__ = ["TOKEN_LIFE_S", "AgentTokens"]

TOKEN_LIFE_S = 24 * 3_600.0
LABEL = "relaymesh up: "
ENDED_KEPT = 100
"""Ended tokens that `token list --all` still shows."""
_IDS = "ids.json"


class AgentTokens:
    """The tokens of the agents of one supervisor. Not thread-safe."""

    def __init__(self, folder: Path, tokens: TokenFile, life_s: float = TOKEN_LIFE_S) -> None:
        self._folder = folder
        self._tokens = tokens
        self._life_s = life_s
        self._ids: dict[str, list[str]] = {}
        self._issued: dict[str, float] = {}

    def path_of(self, agent: str) -> Path:
        """Where the text is, for a reference `file:PATH`."""
        return self._folder / f"{agent}.token"

    def is_due(self, agent: str) -> bool:
        """Whether it is time for a new one."""
        issued = self._issued.get(agent)
        return issued is not None and time.monotonic() - issued > self._life_s / 2

    def issue(self, agent: str) -> None:
        """A new token for the agent. Earlier tokens stay valid for processes that still use them."""
        token, text = self._tokens.create(
            {f"agent:{agent}"}, label=f"{LABEL}{agent}"[:80], lifetime_ms=round(self._life_s * 1000)
        )
        self._ids.setdefault(agent, []).append(token.id)
        self._issued[agent] = time.monotonic()
        self._note()
        replace_file(self.path_of(agent), text.encode())

    def revoke(self, agent: str) -> None:
        """End all tokens of the agent."""
        self._issued.pop(agent, None)
        for id in self._ids.pop(agent, ()):
            with contextlib.suppress(MeshError):  # it ended, and was forgotten, long ago
                self._tokens.revoke(id)
        self.path_of(agent).unlink(missing_ok=True)
        self._note()

    def revoke_left(self) -> int:
        """Revoke the tokens that an earlier supervisor issued and did not revoke. Returns how many."""
        try:
            left = json.loads((self._folder / _IDS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            left = []
        count = 0
        for id in left if isinstance(left, list) else []:
            with contextlib.suppress(MeshError):
                self._tokens.revoke(str(id))
                count += 1
        self._tokens.forget_ended(LABEL, ENDED_KEPT)
        for path in self._folder.glob("*.token"):
            path.unlink(missing_ok=True)
        self._note()
        return count

    def _note(self) -> None:
        ids = [id for each in self._ids.values() for id in each]
        replace_file(self._folder / _IDS, json.dumps(ids).encode())
