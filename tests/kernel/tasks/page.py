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
    "failed": "the attempt failed, or took longer than one may; it is tried again after its backoff",
    "abandoned": "its lease ran out, or its holder is known to be dead; it waits to be granted again",
    "succeeded": "its result was accepted, in time or late; or every one of its items ended",
    "refused": "the agent said that it cannot be done, the message was dropped, or its input cannot be made",
    "timed_out": "its own time, or that of its task, is over",
    "died": "no attempt is left: its message is a dead letter",
    "redriven": "its dead letter went back into a mailbox, perhaps edited or moved",
    "purged": "its dead letter was removed for good",
    "skipped": "its condition is false, or a handler took over",
    "cancelled": "its task was cancelled, or failed",
    "expanded": "it goes on as other steps: one for each item of a list, or a group of its own",
    "waits": "it waits for an answer, a time or a signal",
    "withdrawn": "its message was taken back, because its task has used its budget; it is sent again later",
}

STATES = {
    "PENDING": "waits for its needs, for room, or to be granted",
    "RUNNING": "a holder works on it; or the steps that it goes on as are being done; or it waits for an "
    "answer, a time or a signal, without a lease",
    "RETRYING": "an attempt failed; it waits for its backoff",
    "ABANDONED": "its holder is gone; it waits to be granted again",
    "DEAD_LETTER": "no attempt is left; its task waits for a redrive or a cancel; "
    "an end if its failure is caught",
    "SUCCESS": "its result was accepted",
    "FAILED": "it cannot be done: an outcome, not a dead letter",
    "TIMEOUT": "its time is over",
    "SKIPPED": "it is not needed; its output is null",
    "CANCELLED": "its task ended without it",
}

TEXT = """\
# Tasks and their steps

<!-- Made by `python -m tests.kernel.tasks.page` from `TRANSITIONS` in kernel/tasks/status.py. -->

A task runs a plan: steps, and which step needs which. **A step's life is its message's life** ([the life of
an entry](lifecycle.md)): a ready step becomes a message in its agent's mailbox, and lease, retry, backoff,
breaker, dead letter and redrive are the mailbox's. There is no second queue.

Two moves, each safe alone:

- *Settle*: a message leaves its mailbox, and its step ends, perhaps its task too. No message is sent, so a
  result is never refused because another mailbox is full.
- *Advance*: a step whose needs have ended gets its message. Which steps are ready follows from the state
  and is not remembered, so a crash between the two loses nothing, and a second advance does nothing.

## The states of a step

| state | what it means |
|---|---|
{states}

```mermaid
stateDiagram-v2
{diagram}
```

There are no other changes: a test walks each of these, and refuses any that is not here.

| from | event | to | what happened |
|---|---|---|---|
{rows}

## Attempts

- An attempt that fails counts against `max_attempts` ({attempts}). One whose holder vanished counts against
  `max_abandoned` ({abandoned}): a node that is killed does not use up the attempts of honest work.
- A lease is {lease} s long unless the plan says otherwise, and is renewed every 2 s while the agent works.
- An agent that registered without `settles` reports later: its ack means that it took the step, which stays
  RUNNING under the same token. Its lease is then 90 s long, renewed by its heartbeats and reports.
- A result that comes late counts if its token is that of the last grant, also when the lease is long over.
  Once another holder was granted the step, or it is a dead letter, or it has ended, it is refused
  (`LEASE_LOST`).

## Clocks

| clock | counts from | when it is over |
|---|---|---|
| `attempt_timeout` | the grant | the attempt has failed; no renewal passes it |
| `timeout` | the sending of the message, or its redrive | the step is TIMEOUT |
| `deadline` | the submit, downtime included | the task is TIMEOUT, and leases end |

## Windows

A task has at most {window} unsettled messages; `parallel` bounds the items of one step within that. What
does not fit stays ready, as does a step whose mailbox is full or whose agent is draining; the task shows
why.

## How a task ends

It succeeds when every step has ended and none failed that nothing caught. A step that fails with
`on_failure: fail` ends the task: messages without a lease are taken back, and holders may finish. A soft
cancel does the same; a hard cancel and the deadline end leases too. A step whose failure is caught
(`continue`, or a step that handles it) has `{{"error": {{"code", "reason"}}}}` for its output.

## Waits

`ask`, `wait` and `signal` are one thing: an event, a time after which it is not waited for, and a value
that counts in its place. A step that waits holds no lease and no place in the window. The question is mail
to the agent that is asked, and only that agent may answer; the first answer counts. When the time is over,
or the question dies unread, the default counts; without one the step is TIMEOUT, or FAILED. A signal that
comes before a step waits for it is kept: at most {signals} of a task, each id once, the first one first.

## Undoing

A task that ends without success undoes what it did: each step with `compensate` that was done, one at a
time, in the reverse order in which their work was over. Holders may finish first. A step that was granted,
and whose outcome is not known, is undone with `uncertain: true`; one whose agent said that it cannot be
done is not undone. Neither a cancel, nor the deadline, nor a used budget stops it. The dead letter of such
a step raises an alert, and the task waits for its redrive or purge. One that ends in another way without
success, because its agent says so, its time is over or its input cannot be evaluated, raises an alert too,
and the next one goes on.

## Budgets

An attempt reports what it has used, as its total so far: a report that comes twice counts once. The
decision in which a task reaches its budget also takes back all its messages that are under no lease. So it
overshoots at most by what the leases that are out still use. A larger budget lets it go on.

## Growing

A step with `grows: true` may end with more steps: they belong to the same task, and the step completes with
their outputs. A step may also be a stored workflow. At most {steps:,} steps beside those of the plan,
{depth} groups deep. A failure inside that no step of the group catches ends the group, and counts as a
failure of the step.
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
