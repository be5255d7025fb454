"""Writes docs/explanation/lifecycle.md from the kernel's table: `python -m tests.kernel.lifecycle_page`."""

from __future__ import annotations

from pathlib import Path

from relaymesh.kernel.entry import TRANSITIONS
from relaymesh.kernel.pending import DELAYED, READY, STATE_NAMES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "lifecycle.md"

EVENTS = {
    "due": "its time has come; no record says so, the clock does",
    "forced": "a call made delayed messages due at once",
    "granted": "given to a holder, under a lease",
    "expired": "its TTL ended while it was pending: a dead letter, `ttl_expired`",
    "overflowed": "published into a full mailbox that dead-letters for itself: `mailbox_full`",
    "dropped": "given up without a dead letter, and counted: by the holder, the contract, or unsubscribing; "
    "or a notice (`ack`, `nack`) of the mesh that was not read within its TTL",
    "already_done": "an earlier holder finished it after its lease was lost: acked unseen; or the result of "
    "a step came late",
    "acked": "done",
    "dead_lettered": "no retry is left, or the error allows none",
    "retried": "failed, and tried again later, or at once when no delay was asked for",
    "deferred": "put off until a given time; the attempt is not counted",
    "lease_expired": "the holder was silent for the whole lease; the attempt is counted",
    "holder_lost": "the process that held it is gone; the attempt is counted",
    "abandoned": "a supervisor knows that its holder is dead; the attempt is counted",
    "released": "the holder never got it, or an earlier one of its run came back; not counted",
}

TEXT = """\
# The life of an entry

<!-- Made by `python -m tests.kernel.lifecycle_page` from `TRANSITIONS` in src/relaymesh/kernel/entry.py. -->

An entry is one message in one mailbox. It is born when the message is accepted and ends when it is
settled. While it is *delayed* no receiver sees it, neither before its first time nor between retries; while
it is *ready* it competes for the next delivery; while it is *leased* one holder works on it.

```mermaid
stateDiagram-v2
{diagram}
```

There are no other changes: a test watches the kernel make each of these, and refuses any that is not here.

| from | event | to | what happened |
|---|---|---|---|
{rows}

A retry or a deferral whose time is now is ready at once; that is why some events lead to two places.
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
