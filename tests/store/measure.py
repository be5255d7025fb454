"""What projecting a message costs, in CPU time of the projecting thread. Run: python -m tests.store.measure

`coalesced`: accepted and acked within one batch. `apart`: acked by a later batch. `busy` runs the same
beside a thread that never lets go of the interpreter by itself; there, messages a second is the figure.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Accepted, Acked, Granted
from relaymesh.store import Projection, SqliteStore

MAILBOXES = [f"default/agent-{i}" for i in range(10)]
CONTENT = b"x" * 200
START_MS = 1_700_000_000_000


def uuid7(number: int) -> str:
    """Grows as real ones do, without the price of randomness."""
    digits = f"{START_MS + number // 100:012x}7{number % 4096:03x}8{number * 2654435761 % 2**60:015x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def rounds(messages: int, record_size: int, apart: int) -> Iterator[list[Projection]]:
    """Accept, grant, ack; each record acked `apart` records after it was accepted."""
    base = 0
    waiting: deque[tuple[str, list[int]]] = deque()
    for n in range(0, messages, record_size):
        mailbox, at = MAILBOXES[n // record_size % 10], START_MS + n // 100
        envelopes = [Envelope(uuid7(i), "default/sender", CONTENT) for i in range(n, n + record_size)]
        found = [Projection(base, Accepted(record_size, at, mailbox, envelopes))]
        waiting.append((mailbox, list(range(base, base + record_size))))
        base += record_size
        if len(waiting) > apart:
            mailbox, sequences = waiting.popleft()
            found.append(Projection(base, Granted(record_size, at, mailbox, "h", 1, sequences)))
            found.append(Projection(base + record_size, Acked(record_size, at, mailbox, sequences)))
            base += 2 * record_size
        yield found


def batches(messages: int, record_size: int, apart: int, batch: int) -> list[list[Projection]]:
    made: list[list[Projection]] = [[]]
    events = 0
    for found in rounds(messages, record_size, apart):
        if events >= batch:
            made.append([])
            events = 0
        made[-1] += found
        events += sum(p.record.count for p in found)
    return made


def busy(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(i * i for i in range(1_000))


def measure(work: list[list[Projection]]) -> tuple[float, float]:
    """CPU and wall seconds of projecting all of it."""
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(Path(directory) / "store.db")
        cpu, wall = time.thread_time(), time.perf_counter()
        for batch in work:
            store.project(batch)
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        store.close()
    return cpu, wall


def report(title: str, messages: int, work: list[list[Projection]], *, beside_busy: bool = False) -> None:
    stop = threading.Event()
    other = threading.Thread(target=busy, args=(stop,))
    if beside_busy:
        other.start()
    best = min(measure(work) for _ in range(1 if beside_busy else 3))
    stop.set()
    if beside_busy:
        other.join()
    print(
        f"{title:44s} {best[0] / messages * 1e6:6.2f} µs CPU  {messages / best[1]:9,.0f} messages/s",
        flush=True,
    )


def main() -> None:
    messages = 200_000
    coalesced = batches(messages, 100, 0, 20_000)
    report("coalesced, records of 100", messages, coalesced)
    report("apart by 2 records of 100, batch 20,000", messages, batches(messages, 100, 2, 20_000))
    report("apart by 1 batch, records of 100", messages, batches(messages, 100, 200, 20_000))
    report("coalesced, records of 1", messages, batches(messages, 1, 0, 20_000))
    report("apart by 1 batch, records of 1", messages, batches(messages, 1, 20_000, 20_000))
    report("coalesced, records of 100, batch 1,000", messages, batches(messages, 100, 0, 1_000))
    for interval in (0.005, 0.0005):
        sys.setswitchinterval(interval)
        report(f"coalesced, busy, switch {interval * 1e3} ms", messages, coalesced, beside_busy=True)


if __name__ == "__main__":
    main()
