"""Writes docs/explanation/tasks.md from the table of states: `python -m tests.kernel.tasks.page`."""

from __future__ import annotations

from pathlib import Path

from relaymesh.kernel.tasks.growing import DEPTH_MAX
from relaymesh.kernel.tasks.plan import MAX_ABANDONED, MAX_ATTEMPTS, PARALLEL_MAX, STEP_LEASE_MS, STEPS_MAX
from relaymesh.kernel.tasks.signals import SIGNALS_MAX
from relaymesh.kernel.tasks.status import ENDED, TRANSITIONS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "tasks.md"

EVENTS = {
    "granted": "a holder has its message, under a lease",
    "given_back": "released, or put off until a given time; the attempt is not counted",
    "failed": "the attempt failed, or was over its `attempt_timeout`; it is tried again after its backoff",
    "abandoned": "its lease ran out, or its holder is known to be dead; it waits to be granted again",
    "succeeded": "its result was accepted, in time or late; or every one of its items ended",
    "refused": "the agent said that it cannot be done, the message was dropped, or its input cannot be made",
    "timed_out": "the time limit of the step, or of its task, is over",
    "died": "no attempt is left: its message is a dead letter",
    "redriven": "its dead letter went back into a mailbox, perhaps edited or moved",
    "purged": "its dead letter was removed for good",
    "skipped": "its condition is false, or a handler took over",
    "cancelled": "its task was cancelled, or failed",
    "expanded": "it is replaced by other steps: one for each item of a list, or a group of its own",
    "waits": "it waits for an answer, a time or a signal",
    "withdrawn": "its message was taken back, because its task has used its budget; it is sent again later",
}

STATES = {
    "PENDING": "waits for its needs, for room, or to be granted",
    "RUNNING": "a holder works on it; or the steps that replaced it are running; or it waits for an "
    "answer, a time or a signal, without a lease",
    "RETRYING": "an attempt failed; it waits for its backoff",
    "ABANDONED": "its holder is gone; it waits to be granted again",
    "DEAD_LETTER": "no attempt is left; its task waits for a redrive, a purge or a cancel. "
    "If its failure is caught, the step has ended",
    "SUCCESS": "its result was accepted",
    "FAILED": "it cannot be done, and has ended without a dead letter",
    "TIMEOUT": "its time limit is over",
    "SKIPPED": "it is not needed; its output is null",
    "CANCELLED": "its task ended before the step did",
}

TEXT = """\
# Tasks and their steps

<!-- Made by `python -m tests.kernel.tasks.page` from `TRANSITIONS` in kernel/tasks/status.py. -->

A task runs a plan. A plan is a list of steps; each step names the steps that it needs. **A step is a
message** ([the life of an entry](lifecycle.md)): a ready step becomes a message in its agent's mailbox.
Lease, retry, backoff, breaker, dead letter and redrive work as for any message of that mailbox. There is no
second queue.

A task moves on in two separate decisions:

- *Settle*: a message is settled, and its step ends; the task may end too. A settle sends no message, so a
  result is never refused because another mailbox is full.
- *Advance*: each step whose needs have ended gets its message. The ready steps are computed from the state
  and are not stored. So a crash between settle and advance loses nothing, and a second advance does nothing.

## The states of a step

| state | what it means |
|---|---|
{states}

```mermaid
stateDiagram-v2
{diagram}
```

There are no other changes. A test makes each of these happen, and fails on any that is not here.

| from | event | to | what happened |
|---|---|---|---|
{rows}

## Attempts

- An attempt that fails counts against `max_attempts` ({attempts}). An attempt whose holder disappeared counts
  against `max_abandoned` ({abandoned}). So killing a node does not use up `max_attempts`.
- A lease is {lease} s long unless the plan says otherwise, and is renewed every 2 s while the agent works.
- An agent that registered without `settles` reports its result later. Its ack means that it has taken the
  step. The step stays RUNNING under the same token. The lease is then 90 s long; heartbeats and reports
  renew it.
- A late result counts if its token is that of the last grant, even when the lease ended long ago. It is
  refused (`LEASE_LOST`) once another holder was granted the step, the step is a dead letter, or the step has
  ended.

## Clocks

| clock | counts from | when it is over |
|---|---|---|
| `attempt_timeout` | the grant | the attempt has failed; a renewal cannot extend it |
| `timeout` | the sending of the message, or its redrive | the step is TIMEOUT |
| `deadline` | the submit, downtime included | the task is TIMEOUT, and leases end |

## Windows

A task has at most {window} unsettled messages. Within that, `parallel` bounds the items of one step. A step
that does not fit stays ready and is sent later. So does a step whose mailbox is full or whose agent is
draining. The task shows the reason.

## How a task ends

A task succeeds when every step has ended and every failure was caught. A step that fails with
`on_failure: fail` ends the task: messages without a lease are taken back, and holders may finish. A soft
cancel does the same. A hard cancel and the deadline also end the leases. A failure is caught by
`on_failure: continue`, or by a step that handles it. The output of such a failed step is
`{{"error": {{"code", "reason"}}}}`.

## Waits

A step with `wait` ends when its time is over. A step with `ask` or `signal` waits for an event. It may have a
time limit, and a default that is its output when no event came in time. A step that waits has no lease, and
does not count in the window. `ask` sends the question as mail to an agent. Only that agent may answer; the
first answer counts. If the time is over, or the question becomes a dead letter, the default is the output.
Without a default the step is TIMEOUT (time over) or FAILED (dead letter). A signal that comes before its step
waits is kept: at most {signals} for a task, each id once, used in the order of arrival.

## Undoing

A task that ends without success undoes its finished steps: each step with `compensate`, one at a time, in the
reverse of the order in which they finished. Current holders may finish first. A step that was granted, and
whose outcome is not known, is undone with `uncertain: true`. A step whose agent said that it cannot be done
is not undone. A cancel, the deadline or a used budget does not stop the undoing. If an undo step becomes a
dead letter, an alert is raised, and the task waits until that dead letter is redriven or purged. If an
undo step ends without success in another way (its agent says so, its time is over, its input cannot be
evaluated), an alert is raised too, and the next undo step goes on.

## Budgets

An attempt reports what it has used, as its total so far. So a report that comes twice counts once. When a
task reaches its budget, the same decision takes back all its messages that have no lease. So the task exceeds
its budget at most by what its current holders still use. It continues when it gets a larger budget.

## Growing

A step with `grows: true` may return more steps. They belong to the same task and form a group. The step
completes when they do, and its output is their outputs. A step may also run a stored workflow. A task may
grow by at most {steps:,} steps, {depth} groups deep. A failure that no step of the group catches ends the
group, and counts as a failure of the step.
"""


def page() -> str:
    arrows = ["    [*] --> PENDING : ready or waiting"]
    rows = []
    for (before, event), after in TRANSITIONS.items():
        arrows.append(f"    {before} --> {after} : {event}")
        rows.append(f"| {before} | {event} | {after} | {EVENTS[event]} |")
    arrows += [f"    {state} --> [*]" for state in STATES if state in ENDED]
    return TEXT.format(
        states="\n".join([f"| {state} | {words} |" for state, words in STATES.items()]),
        diagram="\n".join(arrows),
        rows="\n".join(rows),
        attempts=MAX_ATTEMPTS,
        abandoned=MAX_ABANDONED,
        lease=STEP_LEASE_MS // 1_000,
        window=PARALLEL_MAX,
        signals=SIGNALS_MAX,
        steps=STEPS_MAX,
        depth=DEPTH_MAX,
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
