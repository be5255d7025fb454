"""A delivery: one message, handed to one receiver, under a lease."""

# Written by `make twins` from async_delivery.py: change that file.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from relaymesh.errors import Conflict, InvalidPlan, InvalidValue, LeaseLost
from relaymesh.kernel.address import subscriber_of
from relaymesh.kernel.bounds import LEASE_MS_MAX, flag, shown, whole
from relaymesh.kernel.commands import Ack, Complete, Extend, Nack, Send, Settle
from relaymesh.kernel.tasks.commands import Answer, Fail, Finish, Report
from relaymesh.plans.builder import Workflow
from relaymesh.sdk.compose import Batch
from relaymesh.sdk.endings import Drop, Ending, Failed, text_of
from relaymesh.sdk.handed import Handed
from relaymesh.sdk.receipt import Receipt
from relaymesh.sdk.results import Continue, Result
from relaymesh.sdk.submission import value_of
from relaymesh.wire.tasks import GrowStep, is_step, question_message
from relaymesh.wire.usage import usage_of

if TYPE_CHECKING:
    from relaymesh.sdk.mesh import Mesh

__all__ = ["Delivery"]


class Delivery(Handed):
    """Settle it with `ack` or `nack`, or use it in a `with` block: it acks, or nacks on an exception.

    In such a block, and in a handler, the lease is renewed while the code runs.
    """

    if TYPE_CHECKING:
        _mesh: Mesh

    def ack(self, *, durable: bool = False) -> None:
        """Settle as done. Returns after the write; `durable=True`: after the sync."""
        if durable is not False:
            flag(durable, "durable")
        if not self._settled:
            self._settle(self._mesh._session.execute(Ack([self._token]), durable=durable))

    def ack_and_send(self, to: str, content: Any, **fields: Any) -> Receipt:
        """Ack and send a message, in one step: both are durable, or neither.

        The sender is the agent of the mailbox; for a subscription, the agent of the same name. `fields`: as
        for `send`, without `timeout`. If the send is refused, the delivery is not settled yet. If the lease
        was lost, it raises `LeaseLost` and sends nothing. If the delivery is already settled (as with
        at_most_once), only the message is sent.
        """
        return (self.ack_and_send_many([{"to": to, "content": content, **fields}]))[0]

    def ack_and_send_many(self, messages: Sequence[Mapping[str, Any]]) -> list[Receipt]:
        """The same with several messages, each a dict as for `send_many`: the ack and all, or none."""
        return self._settle_with(subscriber_of(self._mailbox), messages)

    def _settle_with(self, sender: str, messages: Sequence[Mapping[str, Any]]) -> list[Receipt]:
        mesh = self._mesh
        session = mesh._session
        batch = Batch(sender, messages, session.new_ids, mesh._limit, mesh._names)
        if self._settled:
            return batch.receipts(session.execute(Send(batch.groups, batch.minted)))
        if not batch.groups:
            self.ack(durable=True)
            return []
        try:
            given = session.execute(Settle(self._token, batch.groups, batch.minted))
        except LeaseLost:
            self._lost = True
            raise
        self._settled = True
        return batch.receipts(given)

    def finish(self, result: Any = None, *, usage: Mapping[str, Any] | None = None) -> None:
        """Settle a step with its result, which other steps of the task may read. Durable when it returns.

        It also counts after the lease was lost, as long as no other holder was granted the step.
        usage: what the attempt has used in all, as `{"cost_usd": 0.12, "tokens": 3400}`.
        A message that is not a step has no result: None acks it, and any other value raises `InvalidValue`.
        """
        self._require_step(result)
        self._give_result(result if usage is None else Result(result, usage=usage))
        self._finish()

    def grow(
        self,
        steps: Sequence[Mapping[str, Any]] | Mapping[str, Any] | Workflow,
        *,
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        """Settle a step with more steps: it completes with their outputs. See `Continue`.

        Raises `InvalidPlan` if they are refused; the delivery is then not settled yet.
        """
        growth = Continue(steps, usage=usage)
        if not self._settled:
            self._end_step(GrowStep(self._token, growth.document, growth.usage))

    def fail(self, reason: str = "", *, code: str = "failed", usage: Mapping[str, Any] | None = None) -> None:
        """Settle a step as failed for good: it is not tried again, and its plan decides what follows."""
        if not self._settled:
            self._end_step(Fail(self._token, code, reason, usage_of(usage)))

    def report(self, progress: str = "", *, usage: Mapping[str, Any] | None = None) -> None:
        """Show the progress of a step while it runs: in task.show() and on the command line.

        usage: what the attempt has used so far, as `{"cost_usd": 0.12, "tokens": 3400}`: the total, so a
        report that comes twice counts once.
        """
        self._mesh._session.execute(Report(self._token, progress, usage_of(usage)))

    def _end_step(self, command: Finish | Fail | GrowStep) -> None:
        try:
            self._mesh._session.execute(command)
        except LeaseLost:
            self._lost = True
            raise
        self._settled = True

    def answer(self, content: Any, **fields: Any) -> Receipt:
        """Ack a question and send its answer, in one step: both are durable, or neither.

        The sender is the agent of the mailbox. A question of a step is answered for its task: the mesh takes
        the answer itself, and no message is sent.
        """
        return self._answer_as(subscriber_of(self._mailbox), content, fields)

    def _answer_as(self, sender: str, content: Any, fields: Mapping[str, Any]) -> Receipt:
        question = question_message(self._envelope)
        if question is None:
            to, reply = self._reply()
            return (self._settle_with(sender, [{"to": to, "content": content, **reply, **fields}]))[0]
        if fields:
            raise InvalidValue(f"an answer to a step is a value, and has no {shown(next(iter(fields)))}")
        value = value_of(content, "the answer")
        self._mesh._session.execute(Answer(question.task, question.step, value, sender))
        self._settled = True
        return Receipt(self.id, self.sequence, targets=0)

    def drop(self) -> None:
        """Settle without work: counted as dropped."""
        if not self._settled:
            self._settle(self._mesh._session.execute(Ack([self._token], drop=True)))

    def nack(
        self,
        error: BaseException | str | None = None,
        code: str | None = None,
        retryable: bool = True,
        delay_ms: int | None = None,
        until: datetime | float | None = None,
    ) -> str:
        """Settle as failed. Returns the new state: retrying, deferred, dead_letter, dropped or success."""
        if self._settled:
            return "settled"
        return self._tell(self._nack(error, code, retryable, delay_ms, until))

    def _tell(self, nack: Nack) -> str:
        try:
            state = self._mesh._session.execute(nack)
        except LeaseLost:
            self._lost = True
            raise
        self._settled = True
        self._mesh.hooks._told(self._token, state)
        return state

    def extend(self, ms: int) -> datetime:
        """Extend the lease to `ms` milliseconds from now. Never shortens it.

        Writes no record.
        """
        before = self._extended
        deadline = self._mesh._session.execute(Extend(self._token, whole(ms, "ms", 1, LEASE_MS_MAX)))
        self._mesh._renewer.extended(self, deadline, before)
        return self.deadline

    def __enter__(self) -> Delivery:
        if not self._settled:
            self._mesh._renewer.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._mesh._renewer.discard(self)
        if error is None:
            self._finish()
            return False
        try:
            self._fail(error)
        except LeaseLost:
            if isinstance(error, Ending):
                raise
            # The error of the block is more useful; a lost lease needs no nack.
        return isinstance(error, Ending)

    def _finish(self) -> None:
        """The work is done. If the lease was lost meanwhile, record it, so that the work is not repeated."""
        if self._growth is not None and not self._settled:
            try:
                self._end_step(GrowStep(self._token, self._growth, self._usage))
            except (InvalidPlan, Conflict) as refused:
                self._fail(refused)
            return
        if self._result is not None and not self._settled:
            self._end_step(Finish(self._token, self._result, self._usage))
            return
        try:
            self.ack()
        except LeaseLost:
            if not is_step(self._envelope):
                self._mesh._session.execute(Complete(self.receiver, self.sequence))
            raise

    def _fail(self, error: BaseException) -> None:
        if self._settled:
            return
        if isinstance(error, Drop):
            self.drop()
            return
        if isinstance(error, Failed) and is_step(self._envelope):
            self._end_step(Fail(self._token, error.code, text_of(error), usage_of(error.usage)))
            return
        self._tell(self._table.nack(self._token, error))
