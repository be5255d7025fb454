"""`/metrics`: the kernel's counters in Prometheus' text format.

The names are the seeds': `relaymesh_*` of the node, `mailbox_*`, `messages_*` and `dlq_*` of the
mailboxes. Counters count from the beginning of the journal, so a restart does not reset them, but for
those of the server itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from relaymesh.server.counting import in_turns
from relaymesh.server.exchange import Exchange, Reply
from relaymesh.server.served import Served
from relaymesh.wire.stats import MailboxStats, MeshStats

MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]
Family = tuple[str, str, str, list[Sample]]


async def metrics(exchange: Exchange) -> Reply:
    """All counters; those of mailboxes for the credential's namespace."""
    principal, served = exchange.principal, exchange.served
    principal.require("read")

    async def show(stats: MeshStats) -> bytes:
        boxes = [each for each in stats.mailboxes.items() if principal.sees(each[0])]
        return b"".join([*await _mailbox_text(boxes), render(_node(stats)).encode()])

    key = f"metrics {'' if principal.everywhere else principal.namespace}"
    text = await served.counting.shown(key, show)
    return Reply(200, text + render(_server(served)).encode(), MEDIA_TYPE)


async def _mailbox_text(boxes: Sequence[tuple[str, MailboxStats]]) -> list[bytes]:
    """The counters of the mailboxes, in parts. Many mailboxes take several turns of the loop."""
    heads = [head(family) for family in _mailboxes({})]
    parts: list[list[bytes]] = [[each.encode()] for each in heads]
    dead = 0
    for some in in_turns(boxes):
        families = _mailboxes(dict(some))
        dead += sum(box.dead_letters for _, box in some)
        for part, family in zip(parts, families, strict=True):
            part.append(lines(family).encode())
            await asyncio.sleep(0)
    total: Family = ("dlq_depth_total", "gauge", "Dead letters that nobody has redriven.", [({}, dead)])
    return [*(each for part in parts for each in part), render([total]).encode()]


def render(families: Iterable[Family]) -> str:
    """Prometheus' text exposition format 0.0.4."""
    return "".join([head(family) + lines(family) for family in families])


def head(family: Family) -> str:
    name, kind, meaning, _ = family
    return f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"


def lines(family: Family) -> str:
    """A line for each sample."""
    name, _, _, samples = family
    shown = []
    for labels, value in samples:
        pairs = ",".join([f'{label}="{_escaped(text)}"' for label, text in labels.items()])
        shown.append(f"{name}{{{pairs}}} {value:g}\n" if pairs else f"{name} {value:g}\n")
    return "".join(shown)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _mailboxes(boxes: Mapping[str, MailboxStats]) -> list[Family]:
    def each(field: str) -> list[Sample]:
        return [({"mailbox": address}, getattr(box, field)) for address, box in boxes.items()]

    def receiver(field: str) -> list[Sample]:
        return [({"receiver": address}, getattr(box, field)) for address, box in boxes.items()]

    depth: list[Sample] = [
        ({"receiver": address, "priority": str(priority)}, count)
        for address, box in boxes.items()
        for priority, count in box.by_priority.items()
    ]
    processed: list[Sample] = [
        ({"receiver": address, "status": status}, getattr(box, status))
        for address, box in boxes.items()
        for status in ("acked", "dropped", "dead", "expired")
    ]
    breakers: list[Sample] = [({"mailbox": a}, float(box.breaker != "closed")) for a, box in boxes.items()]
    return [
        ("relaymesh_queue_depth", "gauge", "Messages that are not settled.", each("pending")),
        ("relaymesh_leased", "gauge", "Messages that are out with a holder.", each("leased")),
        ("relaymesh_delayed", "gauge", "Messages that wait for their time.", each("delayed")),
        ("relaymesh_queue_bytes", "gauge", "Bytes of content that are not settled.", each("bytes")),
        ("relaymesh_retry_total", "counter", "Deliveries that failed and are tried again.", each("retried")),
        ("relaymesh_dead_total", "counter", "Messages that became dead letters.", each("dead")),
        ("relaymesh_redriven_total", "counter", "Dead letters that were sent back.", each("redriven")),
        (
            "relaymesh_low_starvation_count",
            "counter",
            "Lower entries let through.",
            each("low_starvation_count"),
        ),
        ("relaymesh_breaker_open", "gauge", "1 while the circuit breaker is not closed.", breakers),
        (
            "relaymesh_rate_limited_total",
            "counter",
            "Times deliveries waited for the rate.",
            each("rate_limited"),
        ),
        ("mailbox_queue_depth", "gauge", "Messages that are not settled, by priority.", depth),
        (
            "mailbox_retry_total",
            "counter",
            "Deliveries that failed and are tried again.",
            receiver("retried"),
        ),
        ("messages_sent_total", "counter", "Messages accepted.", receiver("accepted")),
        ("messages_received_total", "counter", "Deliveries handed out.", receiver("delivered")),
        ("messages_processed_total", "counter", "Messages settled, by how.", processed),
    ]


def _node(stats: MeshStats) -> list[Family]:
    return [
        ("relaymesh_sequence", "gauge", "Events in the journal.", [({}, stats.sequence)]),
        ("relaymesh_unsynced", "gauge", "Events not yet durable.", [({}, stats.sequence - stats.synced)]),
        ("relaymesh_epoch", "gauge", "Grows with every start.", [({}, stats.epoch)]),
        ("relaymesh_unrouted_total", "counter", "Published to nobody.", [({}, stats.unrouted)]),
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
