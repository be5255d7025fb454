"""Deliveries: from the mesh to files, and what became of them back to the mesh.

| the meta file lies in | its lease |
|---|---|
| `inbox/<tier>/` | renewed; given back unburned when its time to live is over, or the gateway stops |
| `processing/<worker_id>/` | renewed until the worker was silent for `silent_s` |
| `done/` | acked, then moved to `done/YYYY-MM-DD/` |
| `dead/` | nacked with the worker's verdict |
| nowhere | not renewed: it runs out, and the message is delivered again |

The files are the only memory: a gateway that starts finds every claim by its name, which names its lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from relaymesh.errors import DirectoryError
from relaymesh.gateways.filebus.claim import find_again, read_words
from relaymesh.gateways.filebus.folder import Folder
from relaymesh.gateways.filebus.held_files import CLAIMED, DEAD, DONE, INBOX, Held, Spot, Spots
from relaymesh.gateways.filebus.inbox import drop_payload, put_out, withdraw
from relaymesh.gateways.filebus.names import ALIVE, LOST, META, delivery_stem, is_day, token_of
from relaymesh.gateways.filebus.notices import Notices
from relaymesh.gateways.filebus.session import live_leases, receive_one
from relaymesh.gateways.filebus.settings import BusSettings
from relaymesh.gateways.filebus.settling import Settling
from relaymesh.gateways.filebus.tree import Tree
from relaymesh.kernel.commands import ExtendAll, Release
from relaymesh.kernel.deliveries import DeliveryRow
from relaymesh.sdk.session import Session

MISSING_MAX = 2
"""Looks in a row after which a file that is nowhere is gone: it may have moved back between two of them."""


class Deliveries:
    """What the agents of one bus have out. `held` is by stem."""

    def __init__(
        self,
        tree: Tree,
        session: Session,
        settings: BusSettings,
        agents: tuple[str, ...],
        notices: Notices,
        wall: Callable[[], float],
    ) -> None:
        self._tree = tree
        self._session = session
        self._settings = settings
        self._agents = agents
        self._notices = notices
        self._settling = Settling(tree, session, agents, notices, wall)
        self._holder = f"filebus:{tree.path.name}"
        self.held: dict[str, Held] = {}
        self._spots = Spots(tree)
        self._withdraw_all()
        self.check_claims()

    def turn(self) -> bool:
        """Settle what was moved, renew what is out, put out what there is room for: did anything happen?"""
        found = self._spots.look()
        moved = self._follow(found)
        settled = self._settle(found)
        self._renew()
        return self._fill() or settled or moved

    def close(self) -> None:
        """Give back what no worker claimed. Claims keep their leases, for the next gateway to find."""
        self._withdraw_all()

    # -- where they are

    def _follow(self, found: dict[str, Spot]) -> bool:
        """Note where every delivery lies now. A move is a sign of life."""
        now = self._session.now()
        moved = False
        for held in list(self.held.values()):
            spot = found.get(held.stem)
            if spot is None:
                held.missing += 1
                if held.missing >= MISSING_MAX:
                    self._miss(held)
                continue
            held.missing = 0
            if spot != held.spot:
                if held.spot.state == INBOX:
                    self._pass_over(held)
                held.spot, held.moved_at = spot, now
                moved = True
        return moved

    def _pass_over(self, claimed: Held) -> None:
        """Count it with those that lay there before: a worker takes the most urgent tier first."""
        for held in self.held.values():  # in the order in which they were put out
            if held is claimed:
                return
            if held.spot.state == INBOX and held.mailbox == claimed.mailbox:
                held.passed_over += 1

    def _miss(self, held: Held) -> None:
        """Its file is nowhere. A worker that filed it under a day by itself has acked it."""
        for day in filter(is_day, self._tree.done.others()):
            try:
                folder = self._tree.done.folder(day)
            except (DirectoryError, FileNotFoundError):
                continue
            moved = folder.move(held.stem + META, self._tree.done)
            folder.close()
            if moved:
                return
        del self.held[held.stem]
        drop_payload(self._tree, held.stem)
        self._notices.say(held.stem, "its file was removed: the lease runs out, and it is delivered again")

    def check_claims(self) -> None:
        """Take back claims that this gateway does not know, and mark those whose lease is gone."""
        found = self._spots.look(anew=True)
        unknown = {stem: spot for stem, spot in found.items() if stem not in self.held}
        self._find_again(unknown)
        for stem, spot in unknown.items():
            folder = self._tree.workers.get(spot.of) if spot.state == CLAIMED else None
            if folder is not None and stem not in self.held:
                self._mark_lost(folder, stem)

    def _find_again(self, found: dict[str, Spot]) -> None:
        claims = [
            (stem, spot, read_words(self._folder(spot), stem, self._tree.owners))
            for stem, spot in found.items()
        ]
        for held in find_again(self._session, self._agents, claims):
            self.held[held.stem] = held

    def _folder(self, spot: Spot) -> Folder:
        if spot.state == INBOX:
            return self._tree.tiers[spot.of]
        if spot.state == CLAIMED:
            return self._tree.workers[spot.of]
        return self._tree.done if spot.state == DONE else self._tree.dead

    # -- settling

    def _settle(self, found: dict[str, Spot]) -> bool:
        done = [stem for stem, spot in found.items() if spot.state == DONE]
        dead = [stem for stem, spot in found.items() if spot.state == DEAD]
        if not done and not dead:
            return False
        self._find_again({stem: found[stem] for stem in (*done, *dead) if stem not in self.held})
        self._settling.ack({stem: self.held.get(stem) for stem in done})
        for stem in dead:
            try:
                self._settling.nack(stem, self.held.get(stem))
            except OSError as error:
                self._notices.say(f"dead/{stem}{META}", f"cannot be dealt with: {error}")
        for stem in (*done, *dead):
            self.held.pop(stem, None)
        return True

    # -- leases

    def _renew(self) -> None:
        now = self._session.now()
        self._look_for_life(now)
        self._give_back([held for held in self._in(INBOX) if held.expires_at and held.expires_at <= now])
        asked = [
            (held, 1 if self._is_silent(held, now) else held.length_ms)
            for held in self.held.values()
            if (held.deadline <= now if self._is_silent(held, now) else held.needs_renewal(now))
        ]
        if not asked:
            return
        deadlines = self._session.execute(ExtendAll([(held.token, ms) for held, ms in asked]))
        for (held, _), deadline in zip(asked, deadlines, strict=True):
            if deadline is None:
                self._lose(held)
            else:
                held.deadline = deadline

    def _look_for_life(self, now: int) -> None:
        seen: dict[str, int] = {}
        for held in self._in(CLAIMED):
            worker = held.spot.of
            if worker not in seen:
                folder = self._tree.workers.get(worker)
                status = None if folder is None else folder.stat(ALIVE)
                seen[worker] = 0 if status is None else status.st_mtime_ns
            if seen[worker] != held.alive_ns:
                held.alive_ns, held.moved_at = seen[worker], now

    def _is_silent(self, held: Held, now: int) -> bool:
        return held.spot.state == CLAIMED and now - held.moved_at > self._settings.silent_s * 1000

    def _lose(self, held: Held) -> None:
        """The lease is gone. A worker's file is renamed under it: its move to `done/` will fail."""
        if held.spot.state == INBOX:
            lost = withdraw(self._tree, held.stem, held.spot.of)
        elif held.spot.state == CLAIMED and held.spot.of in self._tree.workers:
            lost = self._mark_lost(self._tree.workers[held.spot.of], held.stem)
        else:
            lost = False
        if lost:
            del self.held[held.stem]

    def _mark_lost(self, folder: Folder, stem: str) -> bool:
        if not folder.move(stem + META, folder, stem + LOST):
            return False  # it moved on just now: the next look finds it there
        drop_payload(self._tree, stem)
        self._notices.say(stem, f"the lease of {folder.path.name}'s claim is lost: it is delivered again")
        return True

    # -- the window

    def _in(self, state: str) -> list[Held]:
        return [held for held in self.held.values() if held.spot.state == state]

    def _fill(self) -> bool:
        """Put out what the mesh has, one at a time: so a lane never has two of its messages out."""
        waiting = dict.fromkeys(self._agents, 0)
        for held in self._in(INBOX):
            starved = held.passed_over >= self._settings.passed_over_max
            waiting[held.mailbox] += self._settings.window if starved else 1
        happened = False
        for agent, count in waiting.items():
            room = min(self._settings.window - count, self._settings.held_max - len(self.held))
            for _ in range(room):
                row = receive_one(self._session, agent, self._holder)
                if row is None or not self._put_out(row, agent):
                    break
                happened = True
        return happened

    def _put_out(self, row: DeliveryRow, agent: str) -> bool:
        try:
            held = put_out(self._tree, row, agent, self._session.now())
        except OSError as error:
            self._session.execute(Release([row.token]))
            drop_payload(self._tree, delivery_stem(row.envelope.id, row.token))
            self._notices.say("inbox", f"deliveries cannot be written: {error}")
            return False
        self.held[held.stem] = held
        return True

    def _give_back(self, chosen: Iterable[Held]) -> None:
        """Unburned, if no worker was faster."""
        taken = [held for held in chosen if withdraw(self._tree, held.stem, held.spot.of)]
        for held in taken:
            del self.held[held.stem]
        if taken:
            self._session.execute(Release([held.token for held in taken]))

    def _withdraw_all(self) -> None:
        """Clear the inbox, also of what an earlier gateway left there."""
        found = self._spots.look(anew=True)
        tokens = [
            token
            for stem, spot in found.items()
            if spot.state == INBOX and (token := token_of(stem)) and withdraw(self._tree, stem, spot.of)
        ]
        for stem in [stem for stem, held in self.held.items() if held.token in tokens]:
            del self.held[stem]
        live = live_leases(self._session, tokens)
        ours = [token for token, mailbox in live.items() if mailbox is None or mailbox in self._agents]
        if ours:
            self._session.execute(Release(ours))
