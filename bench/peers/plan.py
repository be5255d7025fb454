"""Who is compared, and how long each run is."""

from __future__ import annotations

from dataclasses import dataclass

OURS = {"mesh": "RelayMesh, threads", "async": "RelayMesh, event loop"}
"""Embedded: producer, consumer, journal and store in one process."""
PEERS = {
    "websocket": "relaymesh_ws",
    "redis": "redis_streams",
    "nats": "jetstream",
    "nats-synced": "jetstream_synced",
    "rabbitmq": "rabbitmq",
}
"""Their names on the command line, and the modules that start and drive them."""
BATCHES = (1, 100, 1000)
LATENCY_BATCH = 100
SIZE = 200
LATENCY_SENDERS = 4
LATENCY_RECEIVERS = 2


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Rounds, and seconds: of a run for the rate, of a trial of a layout (0: none), of one for latency."""

    rounds: int
    seconds: float
    trial_s: float
    latency_s: float


WHOLE = Lengths(rounds=3, seconds=1.6, trial_s=0.5, latency_s=2.0)
QUICK = Lengths(rounds=1, seconds=0.6, trial_s=0.0, latency_s=1.0)


def chosen(only: list[str]) -> list[str]:
    """Peers whose name starts so; all of them without a name. RelayMesh always takes part."""
    return [name for name in PEERS if not only or any(name.startswith(start) for start in only)]


def rate_key(batch: int) -> str:
    return f"many({batch})"
