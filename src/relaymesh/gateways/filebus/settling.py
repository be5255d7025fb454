"""Settling: what a worker moved to `done/` is acked, what it moved to `dead/` is nacked with its verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaymesh.errors import DirectoryError, LeaseLost
from relaymesh.gateways.filebus.claim import read_words
from relaymesh.gateways.filebus.dead import write_reason
from relaymesh.gateways.filebus.held_files import Held
from relaymesh.gateways.filebus.inbox import ENDINGS, drop_payload
from relaymesh.gateways.filebus.names import META, VERDICT
from relaymesh.gateways.filebus.notices import Notices
from relaymesh.gateways.filebus.tree import Tree
from relaymesh.gateways.filebus.verdict import read_verdict
from relaymesh.kernel.commands import Ack, Complete
from relaymesh.sdk.session import Session
from relaymesh.wire.envelope import iso


class Settling:
    """Tells the mesh first, then clears the files away: done again after a crash, it is done once."""

    def __init__(
        self,
        tree: Tree,
        session: Session,
        agents: tuple[str, ...],
        notices: Notices,
        wall: Callable[[], float],
    ) -> None:
        self._tree = tree
        self._session = session
        self._agents = agents
        self._notices = notices
        self._wall = wall

    def ack(self, deliveries: dict[str, Held | None]) -> None:
        """Ack deliveries in `done/`, by stem. With a lost lease, or none, the work is done all the same."""
        if not deliveries:
            return
        tokens = [held.token for held in deliveries.values() if held is not None and not held.settled]
        stale = set(self._session.execute(Ack(tokens))) if tokens else set()
        for stem, held in deliveries.items():
            if held is None or held.token in stale:
                self._complete(stem, held)
        self._file_away(list(deliveries))

    def _complete(self, stem: str, held: Held | None) -> None:
        """Its next delivery, if there is to be one, is acked unseen."""
        words = read_words(self._tree.done, stem, self._tree.owners)
        mailbox = held.mailbox if held is not None else words.to
        sequence = held.sequence if held is not None else words.delivery.sequence
        if mailbox not in self._agents or sequence is None:
            return
        if self._session.execute(Complete(mailbox, sequence)):
            self._notices.say(stem, "was done after its lease was lost: it is not delivered again")

    def _file_away(self, stems: list[str]) -> None:
        try:
            day = self._tree.day(self._wall())
        except (OSError, DirectoryError) as error:
            self._notices.say("done", f"acked, but cannot be filed away: {error}")
            return
        try:
            for stem in stems:
                for ending in ENDINGS:
                    self._tree.payload.move(stem + ending, day)
                self._tree.done.move(stem + META, day)
        except OSError as error:
            self._notices.say(f"done/{day.path.name}", f"cannot be written: {error}")
        finally:
            day.close()

    def nack(self, stem: str, held: Held | None) -> None:
        """Nack a delivery in `dead/`. It stays there only if it is a dead letter of the mesh too."""
        now = self._session.now()
        verdict = read_verdict(self._tree, stem)
        state = "lease_lost"
        if held is not None:
            try:
                state = "settled" if held.settled else self._session.execute(verdict.nack(held.token, now))
            except LeaseLost:
                state = "lease_lost"
        if state in {"retrying", "deferred"}:
            drop_payload(self._tree, stem)
            self._tree.dead.remove(stem + META)
        elif state in {"dropped", "success"}:
            self._tree.dead.move(stem + META, self._tree.done)
            self._file_away([stem])
        else:
            self._keep(stem, verdict.code, verdict.reason, state)
        self._tree.dead.remove(stem + VERDICT)

    def _keep(self, stem: str, code: str, reason: str, state: str) -> None:
        words: dict[str, Any] = {"code": code, "message": reason, "state": state}
        if state == "lease_lost":
            words["hint"] = LeaseLost.default_hint
        words["at"] = iso(int(self._wall() * 1000))
        for ending in ENDINGS:
            self._tree.payload.move(stem + ending, self._tree.dead)
        write_reason(self._tree.dead, stem, words)
