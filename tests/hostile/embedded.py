"""Hostile calls of the embedded mesh: `Mesh`, `AsyncMesh`, `ManualMesh`, and everything they give."""

from __future__ import annotations

import contextlib
import logging
import random
import signal
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from relaymesh import AsyncMesh, AsyncTask, Mesh, Task, Workflow
from relaymesh.errors import Closed, MeshError
from relaymesh.journal import JournalSettings
from relaymesh.sdk.agent import Inbox
from relaymesh.sdk.async_agent import AsyncInbox
from relaymesh.sdk.endings import Ending
from relaymesh.testing import ManualMesh
from tests.hostile.draw import Draw, Drawn
from tests.hostile.houses import HANDLED, AsyncHouse, House, ManualHouse, ThreadedHouse, sealed
from tests.hostile.judge import Hung, complaint, where
from tests.hostile.picture import differences, picture_of, unstored
from tests.hostile.report import Report
from tests.hostile.surface import Public, surface
from tests.hostile.values import ERRORS, NAMESPACE, value_of

TASK = {"workflow": "w", "steps": {"s": {"agent": "a1"}}}
CALLS_A_LIFE = 200
LIVES_A_DIRECTORY = 8
BYSTANDER_EVERY = 10
CALL_S_MAX = 20.0
HELD_MAX = 40
LONG_S = 0.05
"""A wait that is longer may not be left to chance: it is made where its end is near."""

NAMESPACE["JournalSettings"] = JournalSettings

WEIGHTS = {
    "send": 14, "send_many": 8, "publish": 6, "publish_many": 4, "receive": 10, "receive_many": 8, "nack": 16,
    "extend": 5, "ack": 2, "drop": 1, "agent": 6, "subscribe": 4, "unsubscribe": 1, "redrive": 10,
    "handle": 2, "on": 1,
    "purge_dead_letters": 2, "reprioritise": 4, "ask": 3, "answer": 4, "__enter__": 8, "__aenter__": 8,
    "ack_many": 3,
    "purge": 2, "dead_letter_report": 4,
    "dead_letters": 3, "checkpoint": 0.5, "close": 0.1, "run": 0.5, "stats": 0.5, "open": 0.2, "advance": 3,
    "open_breaker": 0.3, "close_breaker": 1, "Retry": 4, "Rule": 3, "MeshSettings": 4, "RemoteSettings": 2,
    "Reject": 1,
    "Drop": 1, "Mesh": 0.4, "AsyncMesh": 0.4, "ManualMesh": 0.4, "Priority": 1,
}  # fmt: skip
LOOK_SHARE = 0.05
"""How many of the things that calls give are looked at: every public property and field of them."""


class Alarm:
    """Raises `Hung` in a call that takes too long."""

    def __enter__(self) -> None:
        if hasattr(signal, "setitimer"):
            signal.signal(signal.SIGALRM, _hung)
            signal.setitimer(signal.ITIMER_REAL, CALL_S_MAX)

    def __exit__(self, *_: object) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)


def _hung(*_: object) -> None:
    raise Hung(f"no answer within {CALL_S_MAX} s")


class Unmade(Exception):
    """Python itself refused to make a value: there was no call."""


def _unless_ours(error: Exception) -> Exception:
    """The error, if code of the package raised it."""
    return error if "/src/relaymesh/" in "".join(traceback.format_tb(error.__traceback__)) else Unmade()


class Run:
    """One run: lives of meshes, hostile calls in each, and the state compared between them."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.draw = Draw(self.rng)
        self.surface = surface()
        self.report = Report("embedded", seed, list(self.surface))
        self._reads: dict[type, list[Public]] = {}
        for public in self.surface.values():
            if public.kind == "read" and public.owner is not None:
                self._reads.setdefault(public.owner, []).append(public)
        self._folder = folder
        self._directories = 0
        self._shown: dict[type, Any] = {}
        self.house: Any
        self._deliveries: list[Any] = []
        self._letters: list[Any] = []
        self._line = ""
        self._accepted: deque[str] = deque(maxlen=40)
        """Hostile calls that were accepted since the last restart: one of them spoiled what it finds."""

    def calls(self, count: int) -> Report:
        """Make so many calls, over all kinds of mesh; up to twice as many until each name was called.

        What a call finds depends on threads too: a report that was written early has no groups to read.
        """
        kinds = (ManualHouse, ThreadedHouse, AsyncHouse, ManualHouse, ManualHouse)
        lives = max(1, min(LIVES_A_DIRECTORY, count // 1_000))
        turn = 0
        while self._goes_on(count):
            self.house = kinds[turn % len(kinds)](self._new_folder())
            turn += 1
            with self._furnished():
                for _ in range(lives):
                    self._life(min(CALLS_A_LIFE, max(20, count - self.report.total)))
                    if not self._goes_on(count) or not self._reopened(kill=self.rng.random() < 0.5):
                        break
        return self.report

    def _goes_on(self, count: int) -> bool:
        most = 2 * count if self.report.never_called else count
        return self.report.total < most

    def _new_folder(self) -> Path:
        self._directories += 1
        return self._folder / f"data-{self._directories}"

    @contextlib.contextmanager
    def _furnished(self) -> Iterator[None]:
        self.house.open()
        self.house.furnish()
        self._look(self.house.mesh)
        try:
            yield
        finally:
            self._forget()
            try:
                self.house.end(kill=True)
            except Exception as error:
                self._surprise("close", f"the end failed: {type(error).__name__}", error)
            self.house.discard()

    def _forget(self) -> None:
        self._deliveries.clear()
        self._letters.clear()
        self._shown.clear()

    # -- a life

    def _life(self, count: int) -> None:
        """Calls, until there were enough or the mesh is dead."""
        names = self._names()
        weights = [self._weight(each) for each in names]
        for i in range(count):
            public = self._wanted(names) if self.rng.random() < 0.1 else None
            public = public or self.rng.choices(names, weights)[0]
            before = self.report.surprised
            self._one(public)
            surprised = self.report.surprised > before
            if (surprised or i % BYSTANDER_EVERY == 0) and not self._bystander():
                return
            if surprised and not self._reopened(kill=True):
                return

    def _names(self) -> list[Public]:
        """What can be called in this house: the other meshes' names belong to other houses."""
        other = {Mesh, AsyncMesh, ManualMesh} - {self.house.kind}
        asynchronous = self.house.kind is AsyncMesh
        names = []
        for public in self.surface.values():
            owner = public.owner
            if (
                public.kind == "read"
                or owner in other
                or (owner is not None and _asynchronous(owner) is not asynchronous and _paired(owner))
            ):
                continue
            names.append(public)
        return names

    def _weight(self, public: Public) -> float:
        return WEIGHTS.get(public.member, 0.1 if public.owner is None else 1)

    def _wanted(self, names: list[Public]) -> Public | None:
        """A name that this run has not called yet, or one that gives what a name is missing of."""
        unread = {
            each.owner
            for each in self.surface.values()
            if each.kind == "read" and not self.report.calls[each.name]
        }
        missing = [
            each for each in names if not self.report.calls[each.name] or not unread.isdisjoint(each.leads_to)
        ]
        return self.rng.choice(missing) if missing else None

    def _one(self, public: Public) -> None:
        """One call, judged. What it needs first is itself a call that must work."""
        try:
            self._do(public)
        except MeshError as error:
            self._surprise("a bystander", "others cannot go on", error)

    def _do(self, public: Public) -> None:
        if public.kind == "construct":
            self._construct(public)
        elif public.kind == "block":
            self._block(public)
        else:
            self._method(public)

    # -- the kinds of calls

    def _look(self, thing: Any) -> None:
        """Read everything that a thing shows."""
        kind = MeshError if isinstance(thing, MeshError) else type(thing)
        for public in self._reads.get(kind, ()):
            self._line = f"{type(thing).__name__}.{public.member}"
            try:
                getattr(thing, public.member)
            except Exception as error:
                self._surprise(public.name, f"{type(error).__name__} came out", error)
            self.report.calls[public.name] += 1

    def _construct(self, public: Public) -> None:
        drawn = self.draw.arguments(public, references={})
        line = f"{public.name}({drawn})"
        if public.name in ("Mesh", "AsyncMesh", "ManualMesh"):
            self._open_another(public, drawn)
            return
        made = self._judged(public, line, lambda: self._call(NAMESPACE[public.name], drawn), drawn.hostile)
        if made is not None:
            self._show(made)

    def _open_another(self, public: Public, drawn: Drawn) -> None:
        """Open a mesh with these settings; if it opens it must work."""
        if public.name != "ManualMesh" or "path" in drawn.named:
            drawn.named.setdefault("path", "DIRECTORY")
        if drawn.positional[:1]:
            drawn.named.pop("path", None)
        made = {"Mesh": Mesh, "AsyncMesh": AsyncMesh, "ManualMesh": ManualMesh}[public.name]
        house = AsyncHouse(self._folder) if made is AsyncMesh else House()

        def whole() -> None:
            mesh: Any = self._call(made, drawn)
            house.mesh = house.run(mesh.open()) if made is AsyncMesh else mesh
            try:
                house.bystander()
            finally:
                house.run(mesh.close())

        try:
            self._judged(public, f"{public.name}({drawn})", whole, drawn.hostile, opening=True)
        finally:
            house.discard()

    def _block(self, public: Public) -> None:
        """`with delivery:` whose block raises; `with mesh:` is how a life ends."""
        owner = public.owner
        assert owner is not None
        if owner in (Mesh, AsyncMesh, ManualMesh):
            self._leave(public)
            return
        delivery = self._delivery()
        if delivery is None:
            return
        source = self.rng.choice(ERRORS)
        if self.rng.random() < 0.5:
            source = (
                f"changed(Retry('x'), {self.rng.choice(('after', 'until', 'times'))}={self.draw.raw(float)})"
            )
        line = f"with d: raise {source}   # d = mesh.agent({delivery.receiver!r}).receive()"

        def block() -> None:
            try:
                error = value_of(source)
            except Exception as refused:
                raise _unless_ours(refused) from refused
            try:
                self._with(delivery, error)
            except BaseException as raised:
                stopped = isinstance(error, StopIteration) and raised.__cause__ is error  # in a coroutine
                if raised is not error and not stopped:
                    raise
                assert not isinstance(error, Ending), "an ending came out of its block"

        self._judged(public, line, block, 1)

    def _with(self, delivery: Any, error: BaseException) -> None:
        if self.house.kind is AsyncMesh:

            async def inside() -> None:
                async with delivery:
                    raise error

            self.house.run(inside())
        else:
            with delivery:
                raise error

    def _leave(self, public: Public) -> None:
        if self.rng.random() < 0.9 and self.report.calls[public.name]:
            return
        line = "with mesh: raise KeyError"

        def block() -> None:
            try:
                self._with(self.house.mesh, KeyError("out of the block"))
            except KeyError:
                return

        self._judged(public, line, block, 0)
        self._reopened(kill=False)

    def _method(self, public: Public) -> None:
        assert public.owner is not None
        if public.member == "close" and self.rng.random() < 0.9 and self.report.calls[public.name]:
            return
        drawn = self.draw.arguments(public, references=self._references())
        thing = self._receiver(public, drawn)
        if thing is None:
            return
        line = f"{_source_of(thing)}.{public.member}({drawn})"
        result = self._judged(
            public, line, lambda: self._call(getattr(thing, public.member), drawn), drawn.hostile
        )
        if public.member == "on" and callable(result):
            source = self.draw.hostile(_HANDLER) if self.rng.random() < 0.6 else "raises(ValueError('no'))"
            self._judged(public, f"{line}({source})", lambda: self._call(result, Drawn([source])), 1)
        self._keep(result)
        if public.member == "close":
            self._reopened(kill=False)

    def _receiver(self, public: Public, drawn: Drawn) -> Any:
        """Whose method it is. A wait without a near end is made where something arrives."""
        member = public.member
        mesh = self.house.mesh
        if public.owner in (Mesh, AsyncMesh, ManualMesh):
            if member in ("advance", "run") and _long(_argument(public, drawn, "seconds", "None")):
                return self._elsewhere(member)
            if _long(drawn.named.get("timeout", "0")):
                drawn.named.update(id="None", delay_ms="0")
                drawn.positional[:1] = ["'other/quiet'"]  # a topic without subscribers has room
            return mesh
        if public.owner is not None and issubclass(public.owner, (Inbox, AsyncInbox)):
            return self._inbox(public, drawn)
        if public.owner is not None and "Delivery" in public.owner.__name__:
            return self._delivery(any_state=self.rng.random() < 0.1)
        if public.owner in (Task, AsyncTask):
            waits = member == "result" and _long(_argument(public, drawn, "timeout", "None"))
            return self._task(over=waits or member == "watch")
        if public.owner is Workflow:
            return self._workflow()
        return self._instance(public.owner)

    def _task(self, *, over: bool) -> Any:
        """A task of this mesh. `over`: one that has ended, so that no call waits for it."""
        known = self._shown.get(AsyncTask if self.house.kind is AsyncMesh else Task)
        if known is not None and not over and self.rng.random() < 0.7:
            return known
        run, mesh = self.house.run, self.house.mesh
        with contextlib.suppress(Exception):
            task = run(mesh.submit(TASK, self.rng.random()))
            self._keep(run(task.show()))
            if over:
                run(task.cancel(hard=True))
            self._show(task)
            return task
        return None

    def _workflow(self) -> Workflow:
        """One that can be compiled, most of the time."""
        known = self._shown.get(Workflow)
        if isinstance(known, Workflow) and self.rng.random() < 0.5:
            return known
        made = Workflow("w")
        made.step("s", agent="a1")
        self._show(made)
        return made

    def _elsewhere(self, member: str) -> Any:
        """A mesh in which nothing happens however long it waits."""
        if self.house.kind is ManualMesh:
            return ManualMesh()
        mesh = Mesh(durability="memory")
        mesh.close()  # a mesh that is closed has run long enough
        return mesh if member == "run" else None

    def _inbox(self, public: Public, drawn: Drawn) -> Any:
        mesh, run, member = self.house.mesh, self.house.run, public.member
        agents = self.rng.choice(("a1", "a1", "a2", "a3"))
        if member == "handle":
            agents = "w1"
        if member == "ask":
            drawn.named.setdefault("timeout", "0.01")
        waits = _long(_argument(public, drawn, "timeout", "None" if member == "receive" else "0"))
        if member in ("receive", "receive_many") and waits:
            run(run(mesh.agent("stocker")).send("stocked", 1))
            agents = "stocked"
        elif member == "ask" and waits:
            drawn.positional[0] = "'oracle'"
            for name in [name for name in drawn.named if name != "timeout"]:
                del drawn.named[name]
        elif waits:
            drawn.named["timeout"] = "0.01"
        if "Subscription" in (public.owner.__name__ if public.owner else ""):
            kind = public.owner
            return self._instance(kind) or run(mesh.subscribe("t.one", "s1")) if agents != "stocked" else None
        return run(mesh.agent(agents))

    # -- things of this run

    def _references(self) -> dict[str, list[str]]:
        letters = ["LETTER", "[LETTER]", "LETTER.message_id"] if self._letters else ["'m-1'"]
        held = bool(self._deliveries)
        return {
            "which": [*letters, "None"],
            "delivery": ["DELIVERY"] if held else ["None"],
            "deliveries": ["[DELIVERY]"] if held else ["[]"],
        }

    def _call(self, function: Callable[..., Any], drawn: Drawn) -> Any:
        try:
            positional = [self._value(source) for source in drawn.positional]
            named = {name: self._value(source) for name, source in drawn.named.items()}
        except Exception as error:
            raise _unless_ours(error) from error
        try:
            return self.house.call(lambda: function(*positional, **named))
        finally:
            if self.rng.random() < 0.3:
                for value in (*positional, *named.values()):
                    _mutate(value)

    def _value(self, source: str) -> Any:
        if "DELIVERY" in source or "LETTER" in source or "DIRECTORY" in source:
            letter = self.rng.choice(self._letters) if self._letters else None
            delivery = self.rng.choice(self._deliveries) if self._deliveries else None
            return value_of(source, DELIVERY=delivery, LETTER=letter, DIRECTORY=str(self._new_folder()))
        return value_of(source)

    def _instance(self, kind: type | None) -> Any:
        if kind in (Mesh, AsyncMesh, ManualMesh):
            return self.house.mesh
        if kind is not None and "Delivery" in kind.__name__:
            return self._delivery(any_state=True)
        if kind in (Task, AsyncTask):
            return self._task(over=False)
        return self._shown.get(kind) if kind is not None else None

    def _delivery(self, *, any_state: bool = False) -> Any:
        """A delivery that is held, if there is one or something to receive."""
        if any_state and self._deliveries:
            return self.rng.choice(self._deliveries)
        held = [each for each in self._deliveries if not each.settled and not each.lost]
        if held:
            return self.rng.choice(held)
        run, mesh = self.house.run, self.house.mesh
        with contextlib.suppress(Exception):
            for name in ("a1", "a2", "a3"):
                self._keep(run(run(mesh.agent(name)).receive_many(3)))
            if not self._deliveries or self._deliveries[-1].settled:
                run(run(mesh.agent("a2")).send("a1", {"n": 1}))
                self._keep(run(run(mesh.agent("a1")).receive_many(1)))
        return self._deliveries[-1] if self._deliveries else None

    def _keep(self, result: Any) -> None:
        """Remember what a call gave: later calls are made of it."""
        for each in result if isinstance(result, (list, tuple)) else [result]:
            kind = type(each)
            if not kind.__module__.startswith("relaymesh"):
                continue
            self._show(each)
            if "Delivery" in kind.__name__:
                self._deliveries.append(each)
            elif kind.__name__ == "DeadLetter":
                self._letters.append(each)
                self._show(each.letter, each.envelope, *each.failures)
            elif kind.__name__ == "MeshStats":
                self._show(*each.mailboxes.values())
            elif kind.__name__ == "LetterReport":
                self._show(*each.groups)
            elif kind.__name__ == "Entry":
                self._show(each.envelope, *(each.failures or ()))
        del self._letters[:-20]
        while len(self._deliveries) > HELD_MAX:
            with contextlib.suppress(Exception):
                self.house.run(self._deliveries.pop(0).ack())

    def _show(self, *things: Any) -> None:
        for thing in things:
            first = type(thing) not in self._shown
            self._shown[type(thing)] = thing
            if first or self.rng.random() < LOOK_SHARE:
                self._look(thing)
            if self.rng.random() < LOOK_SHARE:
                _vandalise(thing)

    # -- judging

    def _judged(
        self, public: Public, line: str, call: Callable[[], Any], hostile: int, *, opening: bool = False
    ) -> Any:
        self._line = line
        result, error = None, None
        try:
            with Alarm():
                result = call()
        except Unmade:
            return None
        except BaseException as raised:
            if isinstance(raised, (KeyboardInterrupt, SystemExit)):
                raise
            error = raised
            if isinstance(error, MeshError):
                self._look(error)
        self.report.called(public.name, refused=error is not None, hostile=hostile)
        why = complaint(error, opening=opening)
        if isinstance(error, Closed) and self.house.mesh is not None and public.member not in ("run", "open"):
            why = why or ("the mesh is closed" if not opening and not self._is_closed() else None)
        if error is None and hostile:
            self._accepted.append(line[:200])
        if why is not None and error is not None:
            self._surprise(public.name, why, error)
        return result

    def _is_closed(self) -> bool:
        closed = self.house.mesh._closed
        return bool(closed if isinstance(closed, bool) else closed.is_set())

    def _surprise(self, name: str, what: str, error: BaseException | None, detail: str = "") -> None:
        if error is not None and not detail:
            detail = f"{type(error).__name__}: {_shown(error)}"
        place = where(error) if error is not None else "after the call"
        if name in ("open", "checkpoint", "store", "a bystander"):
            detail = f"{detail[:400]}; accepted before: {' | '.join(list(self._accepted)[::-1])}"
        self.report.surprise(name, what, place, f"{self.house.source}; {self._line}", detail)

    def _bystander(self) -> bool:
        """Whether others go on. What handlers got is settled by now, in a mesh without threads."""
        try:
            with Alarm():
                self.house.bystander()
                self._handled()
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            self._surprise("a bystander", "others cannot go on", error)
            return self._reopened(kill=True)
        self.report.bystander += 1
        return True

    def _handled(self) -> None:
        if self.house.kind is not ManualMesh:
            return
        self.house.mesh.advance(0)
        for name in HANDLED:
            box = self.house.node.core.kernel.state.mailboxes[f"default/{name}"]
            assert not box.leased, f"{box.leased} deliveries of {name} were left to time out by their handler"

    def _reopened(self, *, kill: bool) -> bool:
        """End the mesh, open it again, and compare. False: the directory is given up."""
        house: House = self.house
        manual = house.kind is ManualMesh
        self._forget()
        node = house.node
        lag = unstored(node)
        if lag is not None:
            self._surprise("store", "the store does not follow", None, lag)
        try:
            with Alarm():
                house.end(kill=kill)
        except BaseException as error:
            self._surprise("close", "closing failed", error)
        dead = node.core.failure
        try:
            before = picture_of(node)
        except Exception as error:
            self._surprise("checkpoint", "the state cannot be written down", error)
            before = None
        try:
            with Alarm():
                house.open()
        except BaseException as error:
            self._surprise("open", "the directory cannot be opened again", error)
            self._start_anew()
            return False
        self.report.reopened += 1
        if before is not None and (dead is None or isinstance(dead, Closed)):
            for each in differences(before, picture_of(house.node), busy=kill and not manual):
                self._surprise("open", "a restart changed the state", None, each)
        self._accepted.clear()
        house.furnish()
        return True

    def _start_anew(self) -> None:
        """Another directory for the rest of this life."""
        self.house.discard()
        self.house = type(self.house)(self._new_folder())
        self.house.open()
        self.house.furnish()


_HANDLER = next(each for each in surface()["Agent.handle"].parameters if each.name == "handler")


def _asynchronous(owner: type) -> bool:
    return owner.__name__.startswith("Async")


def _paired(owner: type) -> bool:
    """Whether there is a twin for the other kind of program."""
    return owner.__name__.removeprefix("Async") in ("Mesh", "Agent", "Subscription", "Delivery", "ManualMesh")


def _argument(public: Public, drawn: Drawn, name: str, default: str = "0") -> str:
    """The argument of this name, wherever it stands."""
    if name in drawn.named:
        return drawn.named[name]
    names = [each.name for each in public.parameters if each.required]
    if name in names and names.index(name) < len(drawn.positional):
        return drawn.positional[names.index(name)]
    return default


def _long(source: str) -> bool:
    """Whether a wait of this length is one that need not end soon."""
    try:
        value = value_of(source)
    except Exception:
        return False
    if value is None:
        return True
    try:
        return bool(value > LONG_S)
    except Exception:
        return True  # whoever takes it for a time may wait for ever


def _source_of(thing: Any) -> str:
    if isinstance(thing, (Mesh, AsyncMesh)):
        return "mesh"
    kind = type(thing).__name__
    if "Delivery" in kind:
        return f"mesh.agent({thing.receiver!r}).receive()"
    return f"mesh.agent({thing.address!r})" if hasattr(thing, "address") else kind


def _mutate(value: Any) -> None:
    """What a careless caller does to a value that it has handed over."""
    try:
        if isinstance(value, dict):
            for inner in list(value.values()):
                if isinstance(inner, (dict, list)):
                    inner.clear()
            value.clear()
            value["mutated"] = object()
        elif isinstance(value, list):
            for inner in value:
                if isinstance(inner, dict):
                    inner.clear()
            value.append(object())
        elif isinstance(value, bytearray):
            value.clear()
    except Exception:
        return  # it was a hostile one


def _vandalise(thing: Any) -> None:
    """What a careless caller does to a value that it was given."""
    if type(thing).__name__ == "Entry":
        thing.priority, thing.attempts, thing.state, thing.ready_at = object(), "many", None, -1
    for name in ("failures", "mailboxes", "by_priority"):
        held = getattr(thing, name, None)
        if isinstance(held, (list, dict)):
            held.clear()


def _shown(error: BaseException) -> str:
    try:
        return str(error).encode("ascii", "backslashreplace").decode()
    except Exception:
        return "(cannot be shown)"


def run(calls: int, seed: int) -> Report:
    """A run in a folder of its own."""
    logging.getLogger("relaymesh").setLevel(logging.CRITICAL)
    with (
        tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder,
        sealed(Path(folder)),
    ):
        return Run(seed, Path(folder)).calls(calls)
