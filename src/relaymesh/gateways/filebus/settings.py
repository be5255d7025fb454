"""Settings of a file bus, each with what raising it costs."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import BYTES_MAX, SECONDS_MAX, real, shown, whole

USER_ID_MAX = (1 << 32) - 1
SECONDS_MIN = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class BusSettings:
    """How one bus behaves. The defaults suit a handful of workers on one machine."""

    window: int = 16
    """Unclaimed deliveries per agent that lie in `inbox/`. More let more workers claim between two
    looks; they also wait there, already chosen, while something more urgent comes."""
    passed_over_max: int = 12
    """Nothing more is put out while a delivery lies in `inbox/` that so many later ones were claimed
    before: the mesh's 8:3:1 holds although a worker takes the most urgent tier first."""
    held_max: int = 1024
    """Deliveries out at once, claimed ones included: a worker that only claims cannot drain the mesh."""
    silent_s: float = 300.0
    """How long a claim is renewed after its worker's last sign of life (the claim itself, or a change of
    `processing/<worker_id>/alive`). Then the lease runs out, and the attempt counts as a timeout."""
    poll_s_min: float = 0.05
    """Pause between two looks while something happens; doubled while nothing does."""
    poll_s_max: float = 0.5
    """The longest pause, and so the longest a quiet bus takes to notice. An idle look costs some
    15 system calls (docs/formats/file-bus.md has the figure)."""
    scan_s: float = 60.0
    """How often every directory is read in full and held against the leases."""
    half_written_s: float = 2.0
    """How long a file that does not parse, or was written after its meta, is taken for half-written."""
    payload_wait_s: float = 60.0
    """How long a meta file waits for its payload before it is dead."""
    payload_max_bytes: int = 10_485_760
    """Largest payload; larger files are refused unread."""
    done_retention_days: int = 7
    """How long `done/`, receipts and marks of lost claims are kept. What is older is removed at the start
    and once a day. A day of `done/` goes as a whole."""
    dead_retention_days: int = 30
    """How long sends that were refused, and deliveries that a worker refused, stay in `dead/`."""
    owners: frozenset[int] = frozenset()
    """User ids whose files are taken, besides the gateway's own user and the owner of the directory."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "owners":
                object.__setattr__(self, field.name, _checked(field, getattr(self, field.name)))
        if not isinstance(self.owners, frozenset):
            raise InvalidSettings(f"owners of a file bus must be a frozenset, not {shown(self.owners)}")
        for owner in self.owners:
            whole(owner, "an owner of a file bus", 0, USER_ID_MAX, InvalidSettings)
        if self.poll_s_max < self.poll_s_min:
            raise InvalidSettings("poll_s_max of a file bus must not be below poll_s_min")


def _checked(field: Field[Any], value: Any) -> int | float:
    what = f"{field.name} of a file bus"
    if field.name.endswith("_s") or "_s_" in field.name:
        return real(value, what, SECONDS_MIN, SECONDS_MAX, InvalidSettings)
    return whole(value, what, 1, BYTES_MAX, InvalidSettings)
