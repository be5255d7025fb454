"""The operations of a mesh, besides opening and closing: see `Mesh`."""

# Written by `make twins` from async_operations.py: change that file.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from relaymesh.kernel.bounds import flag, patience
from relaymesh.kernel.commands import (
    Ack,
    ForceDelayed,
    OpenMailbox,
    Publish,
    PurgeDeadLetters,
    Redrive,
    Reprioritise,
    Subscribe,
    Tick,
    Unsubscribe,
)
from relaymesh.kernel.query import DeadLetters, ListSchedules, ListWorkflows, ShowSchedule
from relaymesh.kernel.schedules.commands import RemoveSchedule
from relaymesh.kernel.schedules.schedule import Missed
from relaymesh.kernel.tasks.commands import RemoveVersions
from relaymesh.kernel.tasks.status import Status
from relaymesh.plans.builder import Workflow
from relaymesh.plans.naming import split_name
from relaymesh.sdk.agent import Agent, Subscription
from relaymesh.sdk.compose import chosen_ids, compose_all
from relaymesh.sdk.delivery import Delivery
from relaymesh.sdk.endings import FailureTable
from relaymesh.sdk.handed import checked_deliveries, mark_settled
from relaymesh.sdk.letters import DeadLetter, Redriven, Which, choose, edited_messages, redriven, select
from relaymesh.sdk.names import Names
from relaymesh.sdk.options import MailboxOptions, mailbox_settings
from relaymesh.sdk.receipt import Receipt, receipts_of
from relaymesh.sdk.retention import (
    Age,
    PurgeReport,
    asked_preview,
    asked_purge,
    check_reason,
    log_purge,
    report_of,
    require_report,
)
from relaymesh.sdk.schedule import Schedule, found_schedule, message_of, schedule_of, work_of
from relaymesh.sdk.schedule import put_of as put_schedule_of
from relaymesh.sdk.stored_workflow import StoredWorkflow, found_workflow, put_of, workflow_of
from relaymesh.sdk.submission import MESH_SENDER, document_of, json_of, whole_of
from relaymesh.sdk.task import Task
from relaymesh.sdk.task_views import TaskSummary, summary_of
from relaymesh.wire.envelope import parse_priority
from relaymesh.wire.housekeeping import Checkpoint, Stats
from relaymesh.wire.letter_report import FindReport, LetterReport
from relaymesh.wire.retention import PurgeCounts
from relaymesh.wire.schedules import HoldSchedule, PutSchedule
from relaymesh.wire.stats import MeshStats
from relaymesh.wire.tasks import FindTask, FindTasks, FindWorkflow, PutWorkflow, SubmitTask, notify_kinds

if TYPE_CHECKING:
    from relaymesh.sdk.mesh import Mesh
    from relaymesh.sdk.session import Session

__all__ = ["Operations"]

NO_TABLE = FailureTable()


class Operations:
    """The operations of a mesh. `Mesh` opens it, runs its handlers and closes it."""

    _names: Names
    _told_limit: int
    """The limit of a message's content that a remote node last reported; 0: use that of the session."""
    _tables: dict[str, FailureTable]
    if TYPE_CHECKING:

        @property
        def _session(self) -> Session: ...

    @property
    def _limit(self) -> int:
        return self._told_limit or self._session.payload_bytes_max

    def agent(self, name: str, **options: Unpack[MailboxOptions]) -> Agent:
        """Return the agent of this name; opens its mailbox if it has none. Options change its settings."""
        address = self._names.agent(name)
        settings = None
        if options:
            settings, self._tables[address] = mailbox_settings(options)
        self._session.execute(OpenMailbox(address, settings))
        return Agent(cast("Mesh", self), address)

    def subscribe(self, topic: str, name: str, **options: Unpack[MailboxOptions]) -> Subscription:
        """Return a durable subscription to a topic (`order.created`) or a pattern (`order.*`, `order.**`).

        It gets what is published from now on, in order, even while it has no receiver; several receivers
        share it. `ordered=True` delivers one message at a time.
        """
        address = self._names.subscription(topic, name)
        settings, self._tables[address] = mailbox_settings(options, schedule="fifo")
        self._session.execute(Subscribe(self._names.pattern(topic), address, settings))
        return Subscription(cast("Mesh", self), address)

    def unsubscribe(self, topic: str, name: str) -> int:
        """End a subscription and drop what it still holds. Returns how many messages were dropped."""
        return self._session.execute(Unsubscribe(self._names.subscription(topic, name)))

    def _table_of(self, address: str) -> FailureTable:
        return self._tables.get(address, NO_TABLE)

    # -- publishing and settling

    def publish(
        self,
        topic: str,
        content: Any,
        *,
        id: str | None = None,
        key: str | None = None,
        sender: str | None = None,
        timeout: float | None = None,
        **fields: Any,
    ) -> Receipt:
        """Send to every subscription of the topic; `receipt.targets` is their number."""
        item = {"content": content, "id": id, "key": key, **fields}
        return (self.publish_many(topic, [item], sender=sender, timeout=timeout))[0]

    def publish_many(
        self,
        topic: str,
        messages: Sequence[Mapping[str, Any]],
        *,
        sender: str | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Publish a batch on one topic, all or none: each a dict of `content` and any field of `send`."""
        address = self._names.topic(topic)
        origin = MESH_SENDER if sender is None else self._names.agent(sender, "sender")
        envelopes, notes, minted = compose_all(
            origin, messages, self._session.new_ids, self._limit, self._names
        )
        command = Publish(address, envelopes, minted)
        return receipts_of(self._session.execute(command, timeout=patience(timeout)), notes)

    def ack_many(self, deliveries: Sequence[Delivery], *, durable: bool = False) -> None:
        """Ack a batch in one step. If some leases were lost, acks the rest and raises `LeaseLost` with their
        names.
        """
        flag(durable, "durable")
        deliveries = checked_deliveries(deliveries, Delivery)
        tokens = [each._token for each in deliveries if not each._settled]
        mark_settled(deliveries, self._session.execute(Ack(tokens), durable=durable))

    # -- tasks

    def submit(
        self,
        workflow: Workflow | Mapping[str, Any] | str,
        input: Any = None,
        *,
        key: str | None = None,
        again: bool = False,
        owner: str | None = None,
        trace: str | None = None,
        reply_to: str | None = None,
        notify: Sequence[str] = (),
    ) -> Task:
        """Run a workflow: a `Workflow`, a dict with the same fields as YAML, or the name of a stored workflow
        (`"release"`, or `"release@3"` for one version). Durable when it returns.

        The same request runs once: a repeated submit returns the same task. `key` identifies the request;
        without it the digest of workflow and input does. `again`: run it again if it ended without success.
        `owner`: the agent that pays for it. `reply_to`: the agent that gets the outcome as mail, of type
        task_complete or task_failed. `notify`: the events for which the owner gets mail: "update",
        "complete", "failed".
        """
        document, data = document_of(workflow), json_of(input)
        address = MESH_SENDER if owner is None else self._names.agent(owner, "owner")
        reply = "" if reply_to is None else self._names.agent(reply_to, "reply_to")
        kinds, chosen = notify_kinds(notify), "" if key is None else key
        request = SubmitTask(document, data, chosen, address, trace, again, reply_to=reply, notify=kinds)
        submitted = self._session.execute(request)
        return Task(cast("Mesh", self), submitted.task, submitted.duplicate)

    def task(self, id: str) -> Task:
        """The task with this id. It does not check whether the task exists."""
        return Task(cast("Mesh", self), FindTask(id).task)

    def tasks(
        self, *, status: Status | None = None, workflow: str | None = None, limit: int = 100
    ) -> list[TaskSummary]:
        """Tasks, the newest first."""
        request = FindTasks(self._session.namespace, status, workflow, limit)
        return [summary_of(view) for view in self._session.execute(request)]

    # -- stored workflows

    def put_workflow(
        self, workflow: Workflow | Mapping[str, Any], version: str | None = None, *, owner: str | None = None
    ) -> StoredWorkflow:
        """Store a workflow, so that `submit` can run it by name. Durable when it returns. Running tasks keep
        their plans.

        Without a version it gets the one in its document, or the next whole number. The same document again
        makes no new version; another document under an existing version raises `Conflict`. `owner`: the agent
        that pays for it.
        """
        address = MESH_SENDER if owner is None else self._names.agent(owner, "owner")
        request = PutWorkflow(whole_of(workflow), "" if version is None else version, address)
        return put_of(self._session.execute(request))

    def workflow(self, name: str, version: str | None = None) -> StoredWorkflow:
        """A stored workflow with its document: this version, or the one put last. Raises `NotFound`."""
        name, chosen = split_name(name, version)
        request = FindWorkflow(self._session.namespace, name, chosen)
        return found_workflow(self._session.execute(request), name, chosen)

    def workflows(self, name: str | None = None, *, limit: int = 100) -> list[StoredWorkflow]:
        """The last version of each stored workflow, or all versions of one; the newest first."""
        request = ListWorkflows(self._session.namespace, name, limit)
        return [workflow_of(view) for view in self._session.execute(request)]

    def remove_workflow(self, name: str, version: str | None = None) -> int:
        """Remove a version of a stored workflow, or all. Tasks go on. Returns how many were removed."""
        name, chosen = split_name(name, version)
        return self._session.execute(RemoveVersions(self._session.namespace, name, chosen))

    # -- schedules

    def put_schedule(
        self,
        name: str,
        cron: str,
        *,
        tz: str = "UTC",
        workflow: Workflow | Mapping[str, Any] | str | None = None,
        input: Any = None,
        to: str | None = None,
        content: Any = None,
        missed: Missed = "one",
        replace: bool = False,
        owner: str | None = None,
        **fields: Any,
    ) -> Schedule:
        """Run a workflow, or send `content` to agent `to`, at every tick of a cron line. Durable when it
        returns. Each tick runs once, even after a crash.

        `workflow` is as for `submit`; a stored one without a version is looked up at each tick. `missed`: for
        ticks that passed while the mesh was down: one run for all of them, or none. `replace`: replace a
        schedule of this name that has other fields; else that raises `Conflict`. A message may have the
        fields `type`, `priority`, `ttl` and `key` of `send`. `owner`: the agent that pays.
        """
        address = MESH_SENDER if owner is None else self._names.agent(owner, "owner")
        message = message_of(address, to, content, fields, self._limit)
        recipient = None if to is None else self._names.agent(to, "recipient")
        work = work_of(workflow, input, recipient, message)
        request = PutSchedule(name, cron, work, address, tz, missed, replace)
        return put_schedule_of(self._session.execute(request))

    def schedule(self, name: str) -> Schedule:
        """A schedule, with its work and the results of its last ticks. Raises `NotFound`."""
        query = ShowSchedule(self._session.namespace, name)
        return found_schedule(self._session.execute(query), query.name)

    def schedules(self, *, limit: int = 1_000) -> list[Schedule]:
        """Schedules by name, without their documents, inputs and contents."""
        query = ListSchedules(self._session.namespace, limit)
        return [schedule_of(view) for view in self._session.execute(query)]

    def pause_schedule(self, name: str) -> Schedule:
        """Pause a schedule: no tick runs until it is resumed. Raises `NotFound`."""
        return schedule_of(self._session.execute(HoldSchedule(self._session.namespace, name, True)))

    def resume_schedule(self, name: str) -> Schedule:
        """Resume a schedule at its next tick. Ticks during the pause do not run, and do not count as
        missed."""
        return schedule_of(self._session.execute(HoldSchedule(self._session.namespace, name, False)))

    def remove_schedule(self, name: str) -> bool:
        """Remove a schedule. Tasks that it started go on. Returns whether there was one."""
        return self._session.execute(RemoveSchedule(self._session.namespace, name))

    # -- maintenance

    def dead_letters(self, **filters: Any) -> list[DeadLetter]:
        """Return the dead letters that match: `receiver, sender, reason, code, ids, since, until, status,
        limit`.
        """
        return select(self._session.execute(DeadLetters()), **filters)

    def redrive(
        self,
        which: Which = None,
        *,
        to: str | None = None,
        edit: Any = None,
        dry_run: bool = False,
        **filters: Any,
    ) -> list[Redriven]:
        """Send dead letters back to their mailbox, or to agent `to`. Repeating the call changes nothing.

        `which`: an id, a `DeadLetter`, or several; else a filter as for `dead_letters`. `edit`: a function
        from content to content, or the new content. An edited message gets a new id and names its origin; the
        result holds the new id in `redriven_as`. The function runs in the calling thread before anything is
        redriven, and may use the mesh; if it fails or returns None, nothing is redriven.
        """
        flag(dry_run, "dry_run")
        letters = choose(self._session.execute(DeadLetters()), which, filters)
        target = None if to is None else self._names.agent(to, "recipient")
        sequences: list[int | None] = [None] * len(letters)
        edited = None
        if not dry_run and letters:
            edited = edited_messages(letters, edit, self._session.new_ids, self._limit)
            sequences = self._session.execute(Redrive([letter.key for letter in letters], target, edited))
        return redriven(letters, target, sequences, edited)

    def purge_dead_letters(self, which: Which = None, **filters: Any) -> int:
        """Remove dead letters for good. Returns how many."""
        letters = choose(self._session.execute(DeadLetters()), which, filters)
        return self._session.execute(PurgeDeadLetters([letter.key for letter in letters])) if letters else 0

    def purge(
        self,
        *,
        done_older_than: Age | None = None,
        dead_older_than: Age | None = None,
        mailbox: str | None = None,
        including_steps: bool = False,
        dry_run: bool = True,
        reason: str | None = None,
    ) -> PurgeReport:
        """Count old messages, tasks and dead letters; with `dry_run=False` and a `reason`, remove them for
        good.

        `done_older_than`: rows of settled messages and ended tasks; `dead_older_than`: dead letters, which
        are archived first. Ages are timedeltas or seconds. Without any: the retention of the node. `mailbox`:
        only messages and dead letters of this agent, or of `pattern:name`. Dead letters of steps that a task
        waits for stay, unless `including_steps`: these steps then fail. Live messages and tasks are never
        removed.
        """
        flag(dry_run, "dry_run")
        box = None if mailbox is None else self._names.mailbox(mailbox)
        asked = asked_preview(done_older_than, dead_older_than, box, including_steps)
        if not dry_run:
            check_reason(reason)
        preview = self._session.execute(asked)
        if dry_run:
            return report_of(preview, None)
        counts, after, more = PurgeCounts(), 0, True
        request = asked_purge(preview, reason, box, including_steps)
        while more:
            part = self._session.execute(asked_purge(preview, reason, box, including_steps, after))
            counts, after, more = counts.plus(part.counts), part.after, part.more
        log_purge(request, counts)
        return report_of(preview, counts)

    def dead_letter_report(self, day: str | None = None) -> LetterReport:
        """The daily report of dead letters: of a day (YYYY-MM-DD, UTC), or the newest. Raises `NotFound`."""
        return require_report(self._session.execute(FindReport(day)), day)

    def reprioritise(self, name: str, priority: int | str, ids: Sequence[str] | None = None) -> int:
        """Change the priority of an agent's pending messages: all of them, or those with these ids."""
        chosen = None if ids is None else chosen_ids(ids)
        return self._session.execute(Reprioritise(self._names.agent(name), chosen, parse_priority(priority)))

    def deliver_due(self) -> int:
        """Deliver delayed messages that are due. The mesh also does this by itself. Returns how many."""
        return self._session.execute(Tick())

    def force_deliver_delayed(self, name: str | None = None) -> int:
        """Deliver delayed messages at once: of one agent, or all. Returns how many."""
        return self._session.execute(ForceDelayed(None if name is None else self._names.agent(name)))

    def delayed_count(self, name: str | None = None) -> int:
        """How many delayed messages wait: those of one agent, or all."""
        return (self.stats()).delayed(None if name is None else self._names.agent(name))

    def stats(self) -> MeshStats:
        """Counters of every mailbox and of the whole mesh. Works even while the disk fails."""
        return self._session.execute(Stats())

    def checkpoint(self) -> int | None:
        """Write the whole state now: the next start replays less. The mesh also does this by itself."""
        return self._session.execute(Checkpoint())
