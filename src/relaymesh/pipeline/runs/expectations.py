"""The expectations for tables before they are published, and other measurements.

Each expectation measures one number and compares it with a bound. If an `error` expectation fails, the run
fails. A failed `warning` is published with the tables, in `pipeline_metrics`, and shown by `relaymesh
pipeline status`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from relaymesh.pipeline.bronze.snapshot import BronzeSnapshot
from relaymesh.pipeline.tables.counts import Counts

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "Measured",
    "TableShape",
    "of_audit",
    "of_bronze",
    "of_quarantine",
    "of_sums",
    "of_table",
    "of_task_sums",
]

Severity = Literal["info", "warning", "error"]

Counter = Callable[[Sequence[str], Sequence[str]], Counts]
"""From columns and keys to how many nulls those have, and how many different ones there are of these."""


class TableShape(Protocol):
    """The expectations of a table of the catalog."""

    @property
    def name(self) -> str: ...
    @property
    def schema(self) -> StructType: ...
    @property
    def keys(self) -> tuple[str, ...]: ...


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One number. `most` is its upper bound; None: no expectation."""

    table: str
    metric: str
    value: float
    column: str | None = None
    most: float | None = None
    severity: Severity = "info"

    @property
    def passed(self) -> bool:
        return self.most is None or self.value <= self.most

    @property
    def fails(self) -> bool:
        return self.severity == "error" and not self.passed

    def told(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.__struct_fields__, "passed")}

    def __str__(self) -> str:
        of = f"{self.table}.{self.column}" if self.column else self.table
        return f"{self.metric} of {of} is {self.value:g}, and may be {self.most:g}"


def of_table(
    table: TableShape, schema: StructType, counts: Counter, rows: int, day: str | None = None
) -> list[Measured]:
    """Rows of the table, and of what this run wrote: its shape, and that keys are there and unique.

    `counts`: counts what this run wrote, see `Draft.counts`.
    `day`: the column by which the table is refreshed. A row without a day would be lost by the next refresh.
    """
    never_null = {field.name for field in table.schema if not field.nullable} | ({day} if day else set())
    required = sorted({*table.keys, *never_null})
    missing = [name for name in required if name not in schema.names]
    wrong = len(missing) + _misfits(schema, table.schema)
    found = [
        Measured(table=table.name, metric="rows", value=rows),
        Measured(table=table.name, metric="columns_wrong", value=wrong, most=0, severity="error"),
    ]
    if missing:
        return found
    seen = counts(required, table.keys)
    found.append(Measured(table=table.name, metric="rows_written", value=seen.rows))
    found += [
        Measured(
            table=table.name,
            metric="null_rate",
            column=name,
            value=seen.nulls[name] / seen.rows if seen.rows else 0.0,
            most=0 if name in never_null else None,
            severity="error" if name in never_null else "info",
        )
        for name in required
    ]
    if seen.keys is not None:
        twice = seen.rows - seen.keys
        found.append(
            Measured(table=table.name, metric="duplicate_keys", value=twice, most=0, severity="error")
        )
    return found


def _misfits(found: StructType, wanted: StructType) -> int:
    """Columns whose name or type is not the one that the schema promises."""
    have = [(field.name, field.dataType.simpleString()) for field in found]
    want = [(field.name, field.dataType.simpleString()) for field in wanted]
    return len(set(have) ^ set(want))


def of_bronze(
    snapshot: BronzeSnapshot, newest: datetime | None, now: datetime, freshness_s_max: float
) -> list[Measured]:
    """Every sequence once: rows, known gaps and forgotten events together equal the numbers they span."""
    inputs = snapshot.inputs()
    known = snapshot.rows + sum(gap.events for gap in snapshot.gaps)
    known += sum(each.events for each in snapshot.forgotten)
    spans = sum(each.through_sequence - each.first_sequence + 1 for each in inputs)
    found = [
        Measured(table="bronze", metric="rows", value=snapshot.rows),
        Measured(table="bronze", metric="rows_off", value=abs(spans - known), most=0, severity="error"),
        *(
            Measured(
                table="bronze",
                metric="events_missing",
                column=f"sequence {gap.first} to {gap.last}, partition {gap.partition}",
                value=gap.events,
                most=0,
                severity="warning",
            )
            for gap in snapshot.gaps
        ),
    ]
    if newest is not None:
        age = max(0.0, (now - newest).total_seconds())
        found.append(
            Measured(
                table="bronze", metric="freshness_s", value=age, most=freshness_s_max, severity="warning"
            )
        )
    return found


def of_quarantine(rows: int) -> list[Measured]:
    return [Measured(table="quarantine", metric="rows", value=rows, most=0, severity="warning")]


def of_sums(reconciliation: Mapping[str, Any]) -> list[Measured]:
    severity: Severity = "error" if reconciliation["judged"] else "warning"
    off = 0 if reconciliation["balanced"] else 1
    return [Measured(table="messages", metric="sums_off", value=off, most=0, severity=severity)]


def of_task_sums(reconciliation: Mapping[str, Any], *, judged: bool) -> list[Measured]:
    """How many counters of tasks differ between bronze, silver and gold."""
    severity: Severity = "error" if judged else "warning"
    off = len(reconciliation["off"])
    return [Measured(table="tasks", metric="sums_off", value=off, most=0, severity=severity)]


def of_audit(violations: Mapping[str, int]) -> list[Measured]:
    """By rule."""
    return [
        Measured(table="audit_violations", metric=rule, value=count, most=0, severity="error")
        for rule, count in sorted(violations.items())
    ]


def failures(measured: Iterable[Measured]) -> list[Measured]:
    return [each for each in measured if each.fails]
