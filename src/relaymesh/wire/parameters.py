"""Parameters: what the settings file of a node may hold, and what each value changes.

`PARAMETERS` is the one table: names, defaults, bounds, effects. The reader of the file, `relaymesh settings`
and the page docs/reference/settings-file.md come from it. `Parameters` holds the values in force.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import BYTES_MAX, COUNT_MAX, LEASE_MS_MAX, RETRIES_MAX, flag, real, shown, whole
from relaymesh.kernel.settings import BACKOFF_MS_MAX
from relaymesh.kernel.tasks.keys import KEY_DAYS
from relaymesh.kernel.tasks.plan import MAX_ATTEMPTS, PARALLEL_MAX, STEP_LEASE_MS, WINDOW_MAX
from relaymesh.wire.content import PAYLOAD_BYTES_MAX
from relaymesh.wire.near import Names

__all__ = [
    "DEFAULTS",
    "PARAMETERS",
    "ROWS",
    "Parameter",
    "Parameters",
    "Value",
    "checked",
    "environment_name",
    "graceful_timeout_default",
    "parameters_of",
]

Value = int | float | bool
Kind = Literal["whole", "days", "seconds", "flag"]
Place = Literal["node", "server", "workers", "mesh"]
"""Where a value takes effect: in every node, in a node that serves, in programs that run handlers, in a mesh
of several nodes."""

DAYS_MIN = 1e-6
DAYS_MAX = 36_500
"""A hundred years."""
WORKERS_MAX = 10_000
GRACEFUL_S_MAX = 3_600
GRACEFUL_TIMEOUT_S = 15.0
GRACEFUL_TIMEOUT_WINDOWS_S = 5.0
"""Windows ends a process whose console was closed after five seconds, whatever it is doing."""


def graceful_timeout_default(platform: str = os.name) -> float:
    return GRACEFUL_TIMEOUT_WINDOWS_S if platform == "nt" else GRACEFUL_TIMEOUT_S


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """One value for each row of the table. Built by `parameters_of`, which checks them together."""

    max_attempts: int = MAX_ATTEMPTS
    base_backoff_ms: int = 1_000
    max_backoff_ms: int = 60_000
    reclaim_scan_interval_ms: int = 5_000
    lease_heartbeat_ms: int = 2_000
    lease_timeout_ms: int = STEP_LEASE_MS
    suspect_recover_min_ms: int = 5_000
    dead_recover_min_ms: int = 30_000
    pause_worker_when_local_not_alive: bool = True
    mesh_prune_older_than_ms: int = 604_800_000
    mesh_prune_limit: int = 256
    mesh_prune_interval_ms: int = 3_600_000
    payload_max_bytes: int = PAYLOAD_BYTES_MAX
    done_retention_days: float = 7
    idempotency_ttl_days: float = KEY_DAYS
    queue_capacity: int = PARALLEL_MAX
    thread_pool_core: int = 4
    thread_pool_max: int = 8
    llm_parallel_limit: int = 4
    gossip_sync_sample_size: int = 32
    graceful_timeout: float = msgspec.field(default_factory=graceful_timeout_default)
    ack_timeout: int = msgspec.field(default=30_000, name="ackTimeout")
    max_retries: int = msgspec.field(default=3, name="maxRetries")
    retry_delay_base: int = msgspec.field(default=1_000, name="retryDelayBase")
    default_ttl: int = msgspec.field(default=3_600, name="defaultTTL")
    heartbeat_interval: int = msgspec.field(default=30_000, name="heartbeatInterval")
    heartbeat_timeout: int = msgspec.field(default=90_000, name="heartbeatTimeout")


class Parameter(msgspec.Struct, frozen=True):
    """A row of the table. `least` and `most` are bounds of the value; a flag has none."""

    name: str
    kind: Kind
    least: float
    most: float
    place: Place
    effect: str
    """What it changes, and from when on."""
    cost: str
    """What raising it costs."""

    @property
    def active(self) -> bool:
        """Whether this version does anything with it."""
        return self.place != "mesh"

    @property
    def field(self) -> str:
        """Its name in `Parameters`."""
        return _FIELDS[self.name]

    @property
    def default(self) -> Value:
        value: Value = getattr(DEFAULTS, self.field)
        return value


def _row(name: str, kind: Kind, least: float, most: float, place: Place, effect: str, cost: str) -> Parameter:
    return Parameter(name, kind, least, most, place, effect, cost)


_MESH = "Nothing yet: it is checked, and takes effect when several nodes form a mesh."

PARAMETERS: tuple[Parameter, ...] = (
    _row(
        "max_attempts",
        "whole",
        1,
        RETRIES_MAX,
        "node",
        "How often a step may fail before it is a dead letter, if its plan has no `retry.max_attempts`. "
        "Tasks that are submitted from then on.",
        "A step that cannot succeed is a dead letter later.",
    ),
    _row(
        "base_backoff_ms",
        "whole",
        1,
        BACKOFF_MS_MAX,
        "node",
        "Delay before the first retry of a step; the delay before retry n is "
        "min(base * 2^(n-1), max_backoff_ms), and up to 25% more at random. "
        "Tasks that are submitted from then on. A `backoff_ms_base` of the mailbox goes before it.",
        "Work that failed for a moment waits longer.",
    ),
    _row(
        "max_backoff_ms",
        "whole",
        1,
        BACKOFF_MS_MAX,
        "node",
        "The longest delay before a retry of a step, before the random part. "
        "Tasks that are submitted from then on. A `backoff_ms_cap` of the mailbox goes before it.",
        "Work whose agent was away for long goes on later.",
    ),
    _row(
        "reclaim_scan_interval_ms",
        "whole",
        10,
        3_600_000,
        "node",
        "How long a lease is not reclaimed after a suspend or a jump of the clock, and how long "
        "housekeeping may rest at most (never more than 1 s). A lease ends by a timer, not by a scan.",
        "After a suspend, work of dead holders waits longer.",
    ),
    _row(
        "lease_heartbeat_ms",
        "whole",
        50,
        LEASE_MS_MAX,
        "workers",
        "How often programs that use the SDK renew the lease of a step at least. At once.",
        "A renewal that is lost leaves less time for the next one.",
    ),
    _row(
        "lease_timeout_ms",
        "whole",
        1_000,
        LEASE_MS_MAX,
        "node",
        "The lease of a step, if its plan has no `lease`: a holder silent for so long has abandoned it. "
        "Tasks that are submitted from then on.",
        "The step of a dead holder is given to another one later.",
    ),
    _row(
        "suspect_recover_min_ms", "whole", 0, LEASE_MS_MAX, "mesh", _MESH, "A node that is back helps later."
    ),
    _row("dead_recover_min_ms", "whole", 0, LEASE_MS_MAX, "mesh", _MESH, "A node that is back helps later."),
    _row(
        "pause_worker_when_local_not_alive",
        "flag",
        0,
        1,
        "mesh",
        _MESH,
        "A node that is cut off stops working.",
    ),
    _row(
        "mesh_prune_older_than_ms",
        "whole",
        1,
        10 * LEASE_MS_MAX,
        "mesh",
        _MESH,
        "Dead nodes are listed longer.",
    ),
    _row("mesh_prune_limit", "whole", 1, COUNT_MAX, "mesh", _MESH, "One clean-up takes longer."),
    _row("mesh_prune_interval_ms", "whole", 1, LEASE_MS_MAX, "mesh", _MESH, "Dead nodes are listed longer."),
    _row(
        "payload_max_bytes",
        "whole",
        1,
        BYTES_MAX,
        "node",
        "The largest content of a message, checked before anything is written. "
        "Messages that are sent from then on.",
        "Memory, in mailboxes with such messages. `--body-bytes-max` limits requests over HTTP too.",
    ),
    _row(
        "done_retention_days",
        "days",
        DAYS_MIN,
        DAYS_MAX,
        "node",
        "How long the tables keep messages that were settled, and tasks that ended (these at least for "
        "`idempotency_ttl_days`). At the next start or the next day.",
        "A day more costs a day's messages at about 300 bytes each.",
    ),
    _row(
        "idempotency_ttl_days",
        "days",
        DAYS_MIN,
        DAYS_MAX,
        "node",
        "How long the key of a task that ended is known: the same request gets its result, and does not run "
        "again. At once. A key that was removed before a longer time was set is gone.",
        "A day more costs a day's tasks in the tables.",
    ),
    _row(
        "queue_capacity",
        "whole",
        1,
        WINDOW_MAX,
        "node",
        "How many messages of one task may be out at once; the other ready steps wait. "
        "Tasks that are submitted from then on.",
        "Memory, and a large fan-out fills the mailboxes of its agents.",
    ),
    _row(
        "thread_pool_core",
        "whole",
        1,
        WORKERS_MAX,
        "workers",
        "How many threads of a `Mesh` run handlers at first, where `workers` is not given. At once.",
        "About 100 kB of memory a thread.",
    ),
    _row(
        "thread_pool_max",
        "whole",
        1,
        WORKERS_MAX,
        "workers",
        "How many handlers of a mesh run at once at most, where `workers` is not given. At once: "
        "what runs goes on.",
        "About 100 kB of memory a thread, and what the handlers use.",
    ),
    _row(
        "llm_parallel_limit",
        "whole",
        1,
        WORKERS_MAX,
        "workers",
        "How many blocks `with mesh.model_call():` of one program run at once; the others wait. At once: "
        "what runs goes on.",
        "Memory, cost, and refusals of a provider for too many requests.",
    ),
    _row("gossip_sync_sample_size", "whole", 1, 1_000, "mesh", _MESH, "Larger packets between nodes."),
    _row(
        "graceful_timeout",
        "seconds",
        0,
        GRACEFUL_S_MAX,
        "server",
        "How many seconds a stop may take before what still runs is cut off. At the next stop.",
        "A stop may take that long.",
    ),
    _row(
        "ackTimeout",
        "whole",
        1,
        LEASE_MS_MAX,
        "server",
        "Milliseconds to settle a delivery. At 30000 the priority decides: 5, 10, 30, 60, 60 s. "
        "Deliveries from then on, in mailboxes for which no lease was chosen.",
        "What a dead receiver held is retried later.",
    ),
    _row(
        "maxRetries",
        "whole",
        0,
        RETRIES_MAX,
        "server",
        "Retries of a message after its first attempt, in mailboxes for which none were chosen. "
        "Failures from then on.",
        "A message that cannot succeed is a dead letter later.",
    ),
    _row(
        "retryDelayBase",
        "whole",
        0,
        60_000,
        "server",
        "Milliseconds before the first retry of a message, then doubled up to 60 s, in mailboxes for which "
        "none were chosen. Failures from then on.",
        "What failed for a moment waits longer.",
    ),
    _row(
        "defaultTTL",
        "whole",
        0,
        LEASE_MS_MAX // 1000,
        "server",
        "Seconds a message may wait if it names no `ttl`; 0 is for ever. Messages sent from then on.",
        "Stale work is kept.",
    ),
    _row(
        "heartbeatInterval",
        "whole",
        1,
        LEASE_MS_MAX,
        "server",
        "Milliseconds between the heartbeats that agents are asked for. Agents that connect from then on.",
        "A dead agent is noticed later.",
    ),
    _row(
        "heartbeatTimeout",
        "whole",
        1,
        LEASE_MS_MAX,
        "server",
        "Milliseconds without a heartbeat after which an agent is offline. At once.",
        "A dead agent is noticed later.",
    ),
)
_FIELDS = {field.encode_name: field.name for field in msgspec.structs.fields(Parameters)}
DEFAULTS = Parameters()
ROWS = {row.name: row for row in PARAMETERS}
"""By name."""
_NAMES = Names(ROWS)
_ORDERED = (
    ("base_backoff_ms", "max_backoff_ms", False),
    ("thread_pool_core", "thread_pool_max", False),
    ("lease_heartbeat_ms", "lease_timeout_ms", True),
    ("heartbeatInterval", "heartbeatTimeout", True),
)
"""Pairs of which the first must not be more than the second; with True it must be less."""


def checked(given: Mapping[Any, Any], what: str) -> dict[str, Value]:
    """Values by name, each checked alone. Raises `InvalidSettings` with `what` and the bad key."""
    found: dict[str, Value] = {}
    for name, value in given.items():
        row = ROWS.get(name) if isinstance(name, str) else None
        if row is None:
            raise InvalidSettings(
                f"{what}: there is no setting {shown(name)}", hint=_hint(name), keys=(name,)
            )
        try:
            found[name] = _value(row, value)
        except InvalidSettings as error:
            raise InvalidSettings(f"{what}: {error.message}", hint=_range(row), keys=(name,)) from None
    return found


def parameters_of(values: Mapping[str, Value]) -> Parameters:
    """Checked values together, the defaults for the rest. Raises `InvalidSettings` if two contradict."""
    for low, high, strictly in _ORDERED:
        least, most = values.get(low, ROWS[low].default), values.get(high, ROWS[high].default)
        if least > most or (strictly and least == most):
            relation = "less than" if strictly else "at most"
            raise InvalidSettings(
                f"{low} is {least} and {high} is {most}: {low} must be {relation} {high}",
                hint=f"set {low} and {high} together",
                keys=(low, high),
            )
    return msgspec.structs.replace(DEFAULTS, **{_FIELDS[name]: value for name, value in values.items()})


def environment_name(name: str) -> str:
    """`RELAYMESH_ACK_TIMEOUT` for `ackTimeout`, `RELAYMESH_DEFAULT_TTL` for `defaultTTL`."""
    return f"RELAYMESH_{_FIELDS[name].upper()}"


def _value(row: Parameter, value: Any) -> Value:
    if row.kind == "flag":
        if type(value) is not bool:
            raise InvalidSettings(f"{row.name} must be true or false, not {shown(value)}")
        return flag(value, row.name, InvalidSettings)
    if row.kind == "whole":
        return whole(value, row.name, int(row.least), int(row.most), InvalidSettings)
    return real(value, row.name, row.least, row.most, InvalidSettings)


def _range(row: Parameter) -> str:
    if row.kind == "flag":
        return f"its default is {str(row.default).lower()}"
    return f"a number from {row.least:g} to {row.most:.15g}; the default is {row.default:g}"


def _hint(name: Any) -> str:
    if name == "thread_pool_core/max":
        return "write thread_pool_core and thread_pool_max"
    near = _NAMES.nearest(name) if isinstance(name, str) else None
    return f"did you mean {near}?" if near else "relaymesh settings show lists them all"
