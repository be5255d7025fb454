"""The session over a WebSocket: pipelined, in MessagePack, with several receives at once."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from relaymesh.client.clock import Elapsed
from relaymesh.client.discovery import Find
from relaymesh.client.link import Link
from relaymesh.client.remote import RemoteSession, receipts_from
from relaymesh.client.settings import RemoteSettings
from relaymesh.errors import InvalidEnvelope, LeaseLost, MeshError
from relaymesh.kernel import commands
from relaymesh.kernel.commands import (
    Ack,
    Expect,
    Extend,
    ExtendAll,
    Nack,
    Publish,
    PurgeDeadLetters,
    Redrive,
    RegisterAgent,
    Release,
    Send,
    Unexpect,
)
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.query import DeadLetters, ListSchedules, ListWorkflows, Peek
from relaymesh.kernel.request import Request, Result
from relaymesh.kernel.schedules.schedule import ScheduleView
from relaymesh.kernel.step import Receipt
from relaymesh.kernel.tasks.commands import Abandon, Fail, Finish
from relaymesh.kernel.tasks.looks import StepBounds
from relaymesh.kernel.tasks.status import Status
from relaymesh.kernel.tasks.stored import WorkflowView
from relaymesh.kernel.tasks.views import TaskView
from relaymesh.wire import frames, schedule_frames
from relaymesh.wire.calls import FORMS
from relaymesh.wire.frames import (
    BATCH_MAX,
    Arguments,
    Goodbye,
    NackItem,
    Settle,
    Welcome,
    encode,
)
from relaymesh.wire.tasks import FindTasks, GrowStep

Value = TypeVar("Value")


class WebSocketSession(RemoteSession):
    """Requests to a node over one connection, awaited. Belongs to the loop it was opened on."""

    def __init__(
        self,
        url: str,
        token: str | None,
        settings: RemoteSettings,
        clock: Elapsed | None = None,
        find: Find | None = None,
        resume: str | None = None,
    ) -> None:
        """`find` returns the node's present address, if that may change. `resume`: the id of a session of a
        process that has ended; what it held and had not settled goes back unburned.
        """
        super().__init__(url, clock)
        self._expected: set[tuple[str, str]] = set()
        """Mailboxes and the correlation ids that they expect for this session."""
        self._link = Link(
            url,
            token,
            settings,
            find=find,
            held=lambda: self._held.tokens,
            welcomed=self._welcomed,
            unclaimed=self._unclaimed,
            beat=self._heard,
            renewals=self._renewals,
            resume=resume,
        )

    async def open(self) -> WebSocketSession:
        await self._link.open()
        return self

    def _welcomed(self, welcome: Welcome) -> None:
        self.namespace = welcome.namespace
        self.payload_bytes_max = welcome.payload_bytes_max
        self._heard(welcome.now)

    @property
    def id(self) -> str | None:
        """What the node calls this session. None: it was never open."""
        return self._link.session

    @property
    def failure(self) -> MeshError | None:
        return self._link.failure

    async def _call(
        self, name: str, arguments: Arguments, answer: type[Value] | Any = None, *, patient: bool = False
    ) -> Any:
        raw = msgspec.Raw(encode(arguments))
        result = await self._link.ask(frames.Call(self._link.next_ref(), name, raw), patient=patient)
        return None if answer is None else msgspec.msgpack.decode(result.value, type=answer)

    async def _page(self, name: str, arguments: Arguments, row: type[Value]) -> tuple[list[Value], bool]:
        """One page of a list, and whether more follow."""
        raw = msgspec.Raw(encode(arguments))
        result = await self._link.ask(frames.Call(self._link.next_ref(), name, raw))
        rows: list[Value] = msgspec.msgpack.decode(result.value, type=list[row])  # type: ignore[valid-type]
        return rows, result.more

    # -- requests

    def execute(
        self, request: Request[Result], *, timeout: float | None = None, durable: bool = False
    ) -> Coroutine[Any, Any, Result]:
        """Not a coroutine function itself: what it returns is awaited, one coroutine fewer for each call."""
        carry = _CARRIERS.get(request.__class__)
        if carry is not None:
            return carry(self, request, timeout=timeout, durable=durable)
        form = FORMS[request.__class__]
        return self._call(form.name, form.arguments(request), form.answer)

    async def _register(self, command: RegisterAgent, **_: Any) -> None:
        metadata = msgspec.json.decode(command.metadata, type=dict[str, Any])
        role, words = command.role or None, list(command.capabilities)
        given = frames.Register(command.agent, role, words, metadata, settles=command.settles)
        await self._call("register", given)
        self._link.agents.add(command.agent)

    # -- sending

    async def _send(self, command: Send, *, timeout: float | None, **_: Any) -> list[Receipt]:
        groups = command.groups
        envelopes = [envelope for _, group in groups for envelope in group]
        _check_count(len(envelopes))
        frame = frames.Send(self._link.next_ref(), groups, _ms(timeout))  # type: ignore[arg-type]
        answer, repeated = await self._link.ask_again(frame)
        return receipts_from(envelopes, answer.receipts, first=command.minted and repeated)

    async def _publish(self, command: Publish, *, timeout: float | None, **_: Any) -> list[Receipt]:
        envelopes = command.envelopes
        _check_count(len(envelopes))
        frame = frames.Publish(self._link.next_ref(), command.topic, list(envelopes), _ms(timeout))
        answer, repeated = await self._link.ask_again(frame)
        return receipts_from(envelopes, answer.receipts, first=command.minted and repeated)

    # -- receiving

    def receive(
        self, mailbox: str, max: int, timeout: float | None, correlation_id: str | None = None
    ) -> Coroutine[Any, Any, Deliveries]:
        return self._receive(mailbox, max, timeout, correlation_id)

    def pull(self, mailbox: str, max: int) -> Coroutine[Any, Any, Deliveries]:
        return self._receive(mailbox, max, None, patient=True)

    async def _receive(
        self,
        mailbox: str,
        max: int,
        timeout: float | None,
        correlation_id: str | None = None,
        *,
        patient: bool = False,
    ) -> Deliveries:
        wait_ms = None if timeout is None else _ms(timeout) or 0
        frame = frames.Receive(self._link.next_ref(), mailbox, max, wait_ms, correlation_id)
        answer, _ = await self._link.ask_again(frame, patient=patient)
        got = frames.handed(answer)
        self._held.arrived(got)
        return got

    def _unclaimed(self, got: frames.Deliveries) -> None:
        """The caller that asked for these is gone: give them back."""
        if got.tokens and not got.settled:
            self._link.tell(Settle(self._link.next_ref(), releases=list(got.tokens)))

    def give_back(self, tokens: Sequence[int]) -> None:
        self._held.drop(tokens)
        self._link.tell(Settle(self._link.next_ref(), releases=list(tokens)))

    def show(self, status: str, *, life: bool) -> None:
        """What the agents that registered here do: their heartbeats tell it, for people to see.

        Without `life` one more heartbeat is sent, and then none until they show life again: after some time
        others see them offline.
        """
        self._link.show(status, life=life)

    async def _release(self, command: Release, **_: Any) -> None:
        self._held.drop(command.tokens)
        for some in _batched(command.tokens):
            await self._link.ask(Settle(self._link.next_ref(), releases=some))

    async def _expect(self, command: Expect, **_: Any) -> None:
        asked = (command.mailbox, command.correlation_id)
        await self._call("expect", frames.Correlation(*asked))
        self._expected.add(asked)

    async def _unexpect(self, command: Unexpect, **_: Any) -> None:
        asked = (command.mailbox, command.correlation_id)
        self._expected.discard(asked)
        await self._call("unexpect", frames.Correlation(*asked))

    def _renewals(self) -> list[frames.Call]:
        """The expected answers, for a restarted node that has forgotten them."""
        return [
            frames.Call(self._link.next_ref(), "expect", msgspec.Raw(encode(frames.Correlation(*each))))
            for each in self._expected
        ]

    # -- settling

    async def _ack(self, command: Ack, *, durable: bool, **_: Any) -> list[int]:
        tokens = command.tokens
        if len(tokens) > BATCH_MAX:
            parts = [await self._ack(Ack(some, command.drop), durable=durable) for some in _batched(tokens)]
            return [token for part in parts for token in part]
        given = list(tokens)
        frame = Settle(self._link.next_ref(), durable=durable)
        if command.drop:
            frame.drops = given
        else:
            frame.acks = given
        answer, repeated = await self._link.ask_again(frame)
        stale: list[int] = answer.stale
        if stale and repeated:
            stale = await self._really_stale(stale)
        self._held.drop(given)
        return stale

    async def _ended(self, attempts: list[frames.Attempt]) -> list[bool]:
        ended: list[bool] = await self._call("ended_by", frames.Attempts(attempts), list[bool])
        return ended

    async def _nack(self, nack: Nack, **_: Any) -> str:
        item = NackItem(*[getattr(nack, name) for name in NackItem.__struct_fields__])
        begun = self.now()
        answer, repeated = await self._link.ask_again(Settle(self._link.next_ref(), nacks=[item]))
        return self._nacked(nack.token, answer.states[0], begun, repeated)

    async def _settle(self, command: commands.Settle, **_: Any) -> list[Receipt]:
        token = command.token
        given = [(to, list(envelopes)) for to, envelopes in command.groups]
        _check_count(sum([len(group) for _, group in given]))
        envelopes = [envelope for _, group in given for envelope in group]
        try:
            answer, repeated = await self._link.ask_again(frames.Reply(self._link.next_ref(), token, given))
        except LeaseLost:
            if await self._really_stale([token]):
                self._held.drop([token])
                raise
            # The first answer was lost: sends and settle are one step, so the ids of the sends are known.
            answer = await self._link.ask(frames.Send(self._link.next_ref(), given))
            repeated = True
        self._held.drop([token])
        return receipts_from(envelopes, answer.receipts, first=repeated)

    async def _end_step(self, command: Finish | Fail | GrowStep, **_: Any) -> Status:
        form = FORMS[command.__class__]
        arguments = msgspec.Raw(encode(form.arguments(command)))
        request = self._link.request(frames.Call(self._link.next_ref(), form.name, arguments))
        try:
            answer, _repeated = await self._link.ask_again(request.frame, request=request)
            status: Status = msgspec.msgpack.decode(answer.value, type=form.answer)
        except LeaseLost:
            if request.sends < 2 or await self._really_stale([command.token]):
                self._held.drop([command.token])
                raise
            status = "RUNNING"  # the first answer was lost, and what it said of the task with it
        self._held.drop([command.token])
        return status

    async def _abandon(self, command: Abandon, **_: Any) -> list[int]:
        stale: list[int] = []
        for some in _batched(command.tokens):
            stale += await self._call("abandon", frames.Abandon(some, command.reason), list[int])
        self._held.drop(command.tokens)
        return stale

    async def step_bounds(self, token: int) -> StepBounds:
        """What an attempt of a step may still use. Raises `LeaseLost` if another has the step."""
        left: StepBounds = await self._call("step_bounds", frames.OfGrant(token), StepBounds)
        return left

    async def note_run(self, agent: str, event: Literal["run", "kill"], detail: str) -> None:
        """Have an attempt of an agent audited: it was started, or ended from outside."""
        await self._call("note_run", frames.NoteRun(agent, event, detail))

    async def _extend_all(self, extends: Sequence[tuple[int, int]]) -> list[int | None]:
        before = self._held.deadlines(extends)
        deadlines: list[int | None] = []
        for some in _batched(extends):
            deadlines += (await self._link.ask(Settle(self._link.next_ref(), extends=some))).deadlines
        self._held.extended(extends, before, deadlines)
        return deadlines

    # -- looking after it

    async def _dead_letters(self, query: DeadLetters, **_: Any) -> list[DeadLetter]:  # noqa: ARG002
        letters: list[DeadLetter] = []
        more = True
        while more:
            after = (letters[-1].dead_sequence, letters[-1].mailbox) if letters else None
            some, more = await self._page("dead_letters", frames.LettersPage(after), DeadLetter)
            letters += some
        return letters

    async def _redrive(self, command: Redrive, **_: Any) -> list[int | None]:
        letters, edited = command.letters, command.edited
        sequences: list[int | None] = []
        for start in range(0, len(letters), BATCH_MAX):
            some = slice(start, start + BATCH_MAX)
            changed = None if edited is None else list(edited[some])
            asked = frames.Redrive(list(letters[some]), command.to, changed)
            sequences += await self._call("redrive", asked, list[int | None])
        return sequences

    async def _purge(self, command: PurgeDeadLetters, **_: Any) -> int:
        parts = _batched(command.letters)
        return sum([await self._call("purge", frames.Letters(some), int) for some in parts])

    async def _peek(self, query: Peek, **_: Any) -> list[Pending]:
        rows: list[Pending] = []
        more = True
        while more:
            asked = frames.Peek(query.mailbox, query.limit - len(rows), rows[-1].sequence if rows else 0)
            some, more = await self._page("peek", asked, Pending)
            rows += some
        return rows

    async def _tasks(self, request: FindTasks, **_: Any) -> list[TaskView]:
        found: list[TaskView] = []
        before, more = request.before, True
        while more:
            left = request.limit - len(found)
            asked = frames.FindTasks(request.namespace, request.status, request.workflow, left, before)
            some, more = await self._page("find_tasks", asked, TaskView)
            found += some
            before = found[-1].sequence if found else before
        return found

    async def _workflows(self, query: ListWorkflows, **_: Any) -> list[WorkflowView]:
        found: list[WorkflowView] = []
        before, more = query.before, True
        while more:
            asked = frames.FindWorkflows(query.namespace, query.name, query.limit - len(found), before)
            some, more = await self._page("find_workflows", asked, WorkflowView)
            found += some
            before = found[-1].sequence if found else before
        return found

    async def _schedules(self, query: ListSchedules, **_: Any) -> list[ScheduleView]:
        found: list[ScheduleView] = []
        after, more = query.after, True
        while more:
            asked = schedule_frames.FindSchedules(query.namespace, query.limit - len(found), after)
            some, more = await self._page("find_schedules", asked, ScheduleView)
            found += some
            after = f"{found[-1].schedule.namespace}/{found[-1].schedule.name}" if found else after
        return found

    async def close(self, *, force: bool = False) -> None:
        """Say goodbye: held deliveries go back, no attempt is counted. `force` just disconnects, as a crash
        would.
        """
        await self._link.close(None if force else Goodbye())
        self._held.clear()


_CARRIERS: dict[type[Request[Any]], Callable[..., Coroutine[Any, Any, Any]]] = {
    Send: WebSocketSession._send,
    Ack: WebSocketSession._ack,
    Publish: WebSocketSession._publish,
    Nack: WebSocketSession._nack,
    commands.Settle: WebSocketSession._settle,
    Release: WebSocketSession._release,
    Extend: WebSocketSession._extend,
    ExtendAll: WebSocketSession._extend_each,
    Expect: WebSocketSession._expect,
    Unexpect: WebSocketSession._unexpect,
    RegisterAgent: WebSocketSession._register,
    DeadLetters: WebSocketSession._dead_letters,
    Redrive: WebSocketSession._redrive,
    PurgeDeadLetters: WebSocketSession._purge,
    Peek: WebSocketSession._peek,
    Finish: WebSocketSession._end_step,
    GrowStep: WebSocketSession._end_step,
    Fail: WebSocketSession._end_step,
    Abandon: WebSocketSession._abandon,
    FindTasks: WebSocketSession._tasks,
    ListWorkflows: WebSocketSession._workflows,
    ListSchedules: WebSocketSession._schedules,
}
"""Requests that take more than one call; the others are in `relaymesh.wire.calls`."""


def _batched(values: Sequence[Value]) -> Iterator[list[Value]]:
    """As many tokens as one frame may name."""
    for start in range(0, len(values), BATCH_MAX):
        yield list(values[start : start + BATCH_MAX])


def _check_count(count: int) -> None:
    if count > BATCH_MAX:
        raise InvalidEnvelope(
            f"a batch has at most {BATCH_MAX} messages, not {count}", hint="send them in several batches"
        )


def _ms(timeout: float | None) -> int | None:
    return None if timeout is None else max(0, round(timeout * 1000))
