"""Writes docs/explanation/lifecycle.md from the kernel's table: `python -m tests.kernel.lifecycle_page`."""

from __future__ import annotations

from pathlib import Path

from relaymesh.kernel.entry import TRANSITIONS
from relaymesh.kernel.pending import DELAYED, READY, STATE_NAMES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "lifecycle.md"

EVENTS = {
    "due": "its time has come; this follows from the clock and writes no record",
    "forced": "a call made delayed messages due at once",
    "granted": "given to a holder, under a lease",
    "expired": "its TTL ended while it was pending: it is a dead letter, `ttl_expired`",
    "overflowed": "it was published into a full mailbox: it is a dead letter of that mailbox, `mailbox_full`",
    "dropped": "given up and counted, without a dead letter: by the holder, by the contract, or because the "
    "subscription ended; or it is a notice (`ack`, `nack`) of the mesh that was not read within its TTL",
    "already_done": "an earlier holder finished it after it had lost the lease, so it is acked without "
    "another delivery; or the result of a step came late",
    "acked": "done",
    "dead_lettered": "no retry is left, or the error allows none",
    "retried": "failed, and tried again later, or at once when no delay was asked for",
    "deferred": "put off until a given time; the attempt is not counted",
    "lease_expired": "the holder was silent for the whole lease; the attempt is counted",
    "holder_lost": "the process that held it is gone; the attempt is counted",
    "abandoned": "a supervisor knows that its holder is dead; the attempt is counted",
    "released": "the holder never got it, or an earlier message that was delivered with it came back; "
    "the attempt is not counted",
}

TEXT = """\
# The life of an entry

<!-- Made by `python -m tests.kernel.lifecycle_page` from `TRANSITIONS` in src/relaymesh/kernel/entry.py. -->

An entry is one message in one mailbox. It begins when the message is accepted and ends when it is settled.

- *delayed*: no receiver sees it. It waits for its first time, or for its next retry.
- *ready*: it competes with other entries for the next delivery.
- *leased*: one holder works on it.

```mermaid
stateDiagram-v2
{diagram}
```

There are no other changes. A test makes the kernel perform each of these, and fails on any that is not here.

| from | event | to | what happened |
|---|---|---|---|
{rows}

Some events lead to two states: a retry or a deferral whose time is already reached is ready at once.
"""


def page() -> str:
    arrows = [f"    [*] --> {STATE_NAMES[state]} : accepted" for state in (DELAYED, READY)]
    rows = []
    for (before, event), states in TRANSITIONS.items():
        names = [STATE_NAMES[after] for after in states]
        arrows += [f"    {STATE_NAMES[before]} --> {name} : {event}" for name in names]
        rows.append(f"| {STATE_NAMES[before]} | {event} | {' or '.join(names)} | {EVENTS[event]} |")
    arrows.append("    settled --> [*]")
    return TEXT.format(diagram="\n".join(arrows), rows="\n".join(rows))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
