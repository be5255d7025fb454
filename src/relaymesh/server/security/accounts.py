"""What one credential uses of the node: writes a second, bytes under way, connections. Pure: `now` is passed
in. Each credential has its own limits, so a client that takes too much stops only itself.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.security.rates import Bucket

ACCOUNT_KEY = "relaymesh.account"
ACCOUNTS_MAX = 10_000
"""Idle accounts that are remembered. The longest unused is forgotten first."""


class Account:
    """The account of one credential.

    `incoming`: bytes of bodies and WebSocket messages that are not processed yet. `outgoing`: bytes of
    answers that the client has not read yet. `kept`: bytes of answers that are kept in case the client asks
    again. `long_work`: held by what takes many turns of the loop, so that each credential has one turn at a
    time. `pages`: held while a page of a long list is made and leaves, so that each credential has one at a
    time.
    """

    __slots__ = (
        "_bucket",
        "_burst",
        "_incoming_max",
        "_outgoing_max",
        "_rate",
        "connections",
        "incoming",
        "kept",
        "long_work",
        "outgoing",
        "pages",
        "token_id",
    )

    def __init__(self, token_id: str, settings: SecuritySettings, now: float) -> None:
        self.token_id = token_id
        self._rate = settings.write_rate
        self._burst = settings.burst
        self._incoming_max = settings.incoming_bytes_max
        self._outgoing_max = settings.credential_bytes_max
        self._bucket = Bucket(self._burst, now)
        self.incoming = 0
        self.outgoing = 0
        self.kept = 0
        self.connections = 0
        self.long_work = asyncio.Lock()
        self.pages = asyncio.Lock()

    @property
    def is_idle(self) -> bool:
        return not (self.incoming or self.outgoing or self.kept or self.connections)

    @property
    def is_limited(self) -> bool:
        """Whether writes are counted at all."""
        return self._rate > 0

    def take(self, now: float, cost: float = 1.0) -> float:
        """Seconds to wait before this write is taken; 0 when it was."""
        return self._bucket.take(now, self._rate, self._burst, cost) if self._rate > 0 else 0.0

    def owe(self, cost: float) -> None:
        """Charge what has already been done: the next write waits for it."""
        self._bucket.level -= cost

    def is_over_incoming(self) -> bool:
        return self.incoming > self._incoming_max

    def has_room_for(self, size: int) -> bool:
        """Whether an answer of this size may be held for the client to read. A single one always may."""
        return not self.outgoing or self.outgoing + size <= self._outgoing_max


class Accounts:
    """The accounts of every credential that was seen lately."""

    def __init__(self, settings: SecuritySettings) -> None:
        self._settings = settings
        self._accounts: OrderedDict[str, Account] = OrderedDict()

    def of(self, token_id: str, now: float) -> Account:
        account = self._accounts.get(token_id)
        if account is None:
            account = self._accounts[token_id] = Account(token_id, self._settings, now)
            if len(self._accounts) > ACCOUNTS_MAX:
                self._forget_idle()
        else:
            self._accounts.move_to_end(token_id)
        return account

    def _forget_idle(self) -> None:
        for token_id, account in self._accounts.items():
            if account.is_idle:
                del self._accounts[token_id]
                return


def account_of(scope: Mapping[str, Any]) -> Account:
    """The account of a request or connection that passed the guard."""
    account = scope[ACCOUNT_KEY]
    assert isinstance(account, Account)
    return account
