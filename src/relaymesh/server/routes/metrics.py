"""`/metrics`: the kernel's counters in Prometheus' text format.

The names are the seeds': `relaymesh_*` of the node, `mailbox_*`, `messages_*` and `dlq_*` of the mailboxes.
Counters count from the beginning of the journal, so a restart does not reset them. Exceptions are those of
the server itself, and of sends that leave no record in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

from relaymesh.errors import DeadLettersFull, DiskFloor, MailboxFull, OverBudget, StoreLagging
from relaymesh.server.counting import in_turns
from relaymesh.server.exchange import Exchange, Reply
from relaymesh.server.served import Served
from relaymesh.wire.stats import MailboxStats, MeshStats

MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]
Family = tuple[str, str, str, list[Sample]]
REFUSALS = tuple([kind.code for kind in (MailboxFull, DeadLettersFull, OverBudget, DiskFloor, StoreLagging)])
"""Why a node refuses a send that may work later."""
Box = tuple[str, MailboxStats]
"""A mailbox: its address, escaped where it becomes text, and its counters."""
Show = Callable[[str, Sequence[Box]], str]


async def metrics(exchange: Exchange) -> Reply:
    """All counters; those of mailboxes for the credential's namespace."""
    principal, served = exchange.principal, exchange.served
    principal.require("read")

    async def show(stats: MeshStats) -> bytes:
        boxes = [each for each in stats.mailboxes.items() if principal.sees(each[0])]
        rest = render([*_node(stats), *_server(served)])
        return b"".join([*await _mailbox_text(boxes), rest.encode()])

    key = f"metrics {'' if principal.everywhere else principal.namespace}"
    return Reply(200, await served.counting.shown(key, show), MEDIA_TYPE)


async def _mailbox_text(boxes: Sequence[Box]) -> list[bytes]:
    """The counters of the mailboxes, in parts. Many mailboxes take several turns of the loop."""
    parts: list[list[bytes]] = [[head(name, kind, said).encode()] for name, kind, said, _ in MAILBOX_FAMILIES]
    dead = 0
    for some in in_turns(boxes):
        escaped = [(_escaped(address), box) for address, box in some]
        dead += sum([box.dead_letters for _, box in some])
        for part, (name, _, _, show) in zip(parts, MAILBOX_FAMILIES, strict=True):
            part.append(show(name, escaped).encode())
        await asyncio.sleep(0)
    total: Family = ("dlq_depth_total", "gauge", "Dead letters that were not redriven.", [({}, dead)])
    return [*(each for part in parts for each in part), render([total]).encode()]


def render(families: Iterable[Family]) -> str:
    """Prometheus' text exposition format 0.0.4."""
    return "".join([head(name, kind, said) + _lines(name, samples) for name, kind, said, samples in families])


def head(name: str, kind: str, meaning: str) -> str:
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"


def _lines(name: str, samples: Iterable[Sample]) -> str:
    shown = []
    for labels, value in samples:
        pairs = ",".join([f'{label}="{_escaped(text)}"' for label, text in labels.items()])
        shown.append(f"{name}{{{pairs}}} {value}\n" if pairs else f"{name} {value}\n")
    return "".join(shown)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


# -- mailboxes: text is made at once, because there may be many


def _each(field: str, label: str = "mailbox") -> Show:
    value = attrgetter(field)

    def show(name: str, boxes: Sequence[Box]) -> str:
        return "".join([f'{name}{{{label}="{address}"}} {value(box)}\n' for address, box in boxes])

    return show


def _depth(name: str, boxes: Sequence[Box]) -> str:
    return "".join(
        [
            f'{name}{{receiver="{address}",priority="{priority}"}} {count}\n'
            for address, box in boxes
            for priority, count in box.by_priority.items()
        ]
    )


def _processed(name: str, boxes: Sequence[Box]) -> str:
    return "".join(
        [
            f'{name}{{receiver="{address}",status="{status}"}} {getattr(box, status)}\n'
            for address, box in boxes
            for status in ("acked", "dropped", "dead", "expired")
        ]
    )


def _breakers(name: str, boxes: Sequence[Box]) -> str:
    return "".join([f'{name}{{mailbox="{address}"}} {box.breaker != "closed":d}\n' for address, box in boxes])


MAILBOX_FAMILIES: tuple[tuple[str, str, str, Show], ...] = (
    ("relaymesh_queue_depth", "gauge", "Messages that are not settled.", _each("pending")),
    ("relaymesh_leased", "gauge", "Messages that are out with a holder.", _each("leased")),
    ("relaymesh_delayed", "gauge", "Messages that wait for their time.", _each("delayed")),
    ("relaymesh_queue_bytes", "gauge", "Bytes of content that are not settled.", _each("bytes")),
    ("relaymesh_retry_total", "counter", "Deliveries that failed and are tried again.", _each("retried")),
    ("relaymesh_dead_total", "counter", "Messages that became dead letters.", _each("dead")),
    ("relaymesh_redriven_total", "counter", "Dead letters that were sent back.", _each("redriven")),
    (
        "relaymesh_low_starvation_count",
        "counter",
        "Lower entries let through.",
        _each("low_starvation_count"),
    ),
    ("relaymesh_breaker_open", "gauge", "1 while the circuit breaker is not closed.", _breakers),
    (
        "relaymesh_rate_limited_total",
        "counter",
        "Times deliveries waited for the rate.",
        _each("rate_limited"),
    ),
    ("mailbox_queue_depth", "gauge", "Messages that are not settled, by priority.", _depth),
    (
        "mailbox_retry_total",
        "counter",
        "Deliveries that failed and are tried again.",
        _each("retried", "receiver"),
    ),
    ("messages_sent_total", "counter", "Messages accepted.", _each("accepted", "receiver")),
    ("messages_received_total", "counter", "Deliveries handed out.", _each("delivered", "receiver")),
    ("messages_processed_total", "counter", "Messages settled, by how.", _processed),
)


def _node(stats: MeshStats) -> list[Family]:
    return [
        ("relaymesh_sequence", "gauge", "Events in the journal.", [({}, stats.sequence)]),
        ("relaymesh_unsynced", "gauge", "Events not yet durable.", [({}, stats.sequence - stats.synced)]),
        ("relaymesh_epoch", "gauge", "Grows with every start.", [({}, stats.epoch)]),
        ("relaymesh_unrouted_total", "counter", "Published without a subscriber.", [({}, stats.unrouted)]),
        (
            "relaymesh_duplicates_total",
            "counter",
            "Messages sent before and not queued again, since the start.",
            [({}, stats.duplicates)],
        ),
        (
            "publish_timeout_total",
            "counter",
            "Sends and publishes refused for a limit since the start, at once or after their timeout.",
            [({"code": code}, stats.refused.get(code, 0)) for code in REFUSALS],
        ),
        (
            "relaymesh_journal_bytes_total",
            "counter",
            "Bytes written since the start.",
            [({}, stats.journal_bytes)],
        ),
        ("relaymesh_store_lag", "gauge", "Events the store is behind.", [({}, stats.store_lag)]),
    ]


def _server(served: Served) -> list[Family]:
    counts = served.counts
    return [
        ("relaymesh_web_requests_total", "counter", "Requests since the start.", [({}, counts.requests)]),
        ("relaymesh_web_problems_total", "counter", "Requests refused.", [({}, counts.problems)]),
        ("relaymesh_web_polls", "gauge", "Long polls that wait now.", [({}, counts.polls)]),
        (
            "relaymesh_web_write_get_compat_total",
            "counter",
            "Writes by GET, which is deprecated.",
            [({}, counts.write_get_compat)],
        ),
        (
            "relaymesh_web_write_rate_limited_total",
            "counter",
            "Writes refused by the rate limit.",
            [({}, counts.write_rate_limited)],
        ),
    ]
