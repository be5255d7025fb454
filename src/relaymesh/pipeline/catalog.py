"""All tables behind bronze, in the order in which they are built.

Runs and reports use `TABLES`: nothing else here knows which tables there are. A new table is a schema, a
function, a line in schema/shapes.py and a line here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from relaymesh.pipeline.audit.violations import audit_summary, audit_violations
from relaymesh.pipeline.gold.agent_scorecards import agent_scorecards
from relaymesh.pipeline.gold.alert_history import alert_history
from relaymesh.pipeline.gold.backlog import backlog
from relaymesh.pipeline.gold.contract_violations import contract_violations
from relaymesh.pipeline.gold.cost import cost
from relaymesh.pipeline.gold.critical_paths import critical_paths
from relaymesh.pipeline.gold.critical_steps import critical_steps
from relaymesh.pipeline.gold.dead_letters_daily import dead_letters_daily
from relaymesh.pipeline.gold.duplicates_waste import duplicates_waste
from relaymesh.pipeline.gold.failure_rates import failure_rates
from relaymesh.pipeline.gold.latency import latency
from relaymesh.pipeline.gold.message_traces import message_traces
from relaymesh.pipeline.gold.sizing import sizing
from relaymesh.pipeline.gold.split_advice import split_advice
from relaymesh.pipeline.gold.step_retries import step_retries
from relaymesh.pipeline.gold.task_cost import task_cost
from relaymesh.pipeline.gold.task_outcomes import task_outcomes
from relaymesh.pipeline.gold.throughput import throughput
from relaymesh.pipeline.gold.workflow_latency import workflow_latency
from relaymesh.pipeline.schema import audit as audit_schema
from relaymesh.pipeline.schema import gold as gold_schema
from relaymesh.pipeline.schema import silver as silver_schema
from relaymesh.pipeline.schema.shapes import SHAPES
from relaymesh.pipeline.silver.agents import agents
from relaymesh.pipeline.silver.attempts import attempts
from relaymesh.pipeline.silver.dead_letters import dead_letters
from relaymesh.pipeline.silver.messages import messages
from relaymesh.pipeline.silver.step_attempts import step_attempts
from relaymesh.pipeline.silver.steps import steps
from relaymesh.pipeline.silver.tasks import tasks
from relaymesh.pipeline.silver.traces import traces

__all__ = ["BRONZE", "TABLES", "Layer", "Table", "build_all", "table"]

BRONZE = "bronze"
"""The name under which the events themselves are an input."""

Layer = Literal["silver", "gold", "audit"]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table. `build(**inputs)` makes it from the DataFrames its `inputs` name.

    keys: columns that together name a row. partition_by: the day column it is best stored by, if any.
    """

    name: str
    layer: Layer
    schema: StructType
    version: int
    inputs: tuple[str, ...]
    build: Callable[..., DataFrame]
    keys: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    description: str


_MESSAGE = ("partition", "mailbox", "message_sequence")
_MAILBOX = ("partition", "mailbox")
_TASK = ("partition", "task_id")
_WORKFLOW = ("partition", "namespace", "workflow")


def _table(
    layer: Layer,
    build: Callable[..., DataFrame],
    schema: StructType,
    inputs: tuple[str, ...],
    keys: tuple[str, ...],
    description: str,
) -> Table:
    version, day = SHAPES[build.__name__]
    return Table(
        name=build.__name__, layer=layer, schema=schema, version=version, inputs=inputs, build=build,
        keys=keys, partition_by=() if day is None else (day,), description=description,
    )  # fmt: skip


_silver, _gold, _audit = partial(_table, "silver"), partial(_table, "gold"), partial(_table, "audit")
_S, _G, _A = silver_schema, gold_schema, audit_schema

TABLES: tuple[Table, ...] = (
    _silver(messages, _S.MESSAGES, (BRONZE,), _MESSAGE,
            "One row per message in a mailbox, from acceptance to its end."),
    _silver(attempts, _S.ATTEMPTS, (BRONZE,), ("partition", "sequence"),
            "One row per delivery: a lease granted, and how it ended."),
    _silver(dead_letters, _S.DEAD_LETTERS, (BRONZE, "messages"), ("partition", "mailbox", "dead_sequence"),
            "One row per dead letter, and what became of it."),
    _silver(agents, _S.AGENTS, (BRONZE,), ("partition", "address"),
            "One row per address: agents, subscriptions, and senders without a mailbox."),
    _silver(traces, _S.TRACES, ("messages",), _MESSAGE,
            "One row per message, with its trace and the message it follows from."),
    _silver(step_attempts, _S.STEP_ATTEMPTS, (BRONZE, "attempts"), ("partition", "sequence"),
            "One row per attempt at a step of a task, with the usage that its holder reported."),
    _silver(steps, _S.STEPS, (BRONZE, "step_attempts"), (*_TASK, "step"),
            "One row per step of a task, items of a for_each and added steps too, from ready to its end."),
    _silver(tasks, _S.TASKS, (BRONZE, "steps"), _TASK,
            "One row per task, from its submit to its end."),
    _audit(audit_violations, _A.AUDIT_VIOLATIONS, (BRONZE, "messages", "steps"),
           ("rule", "partition", "mailbox", "message_sequence", "sequence"),
           "Where the journal contradicts the promises. Empty when no promise is broken."),
    _audit(audit_summary, _A.AUDIT_SUMMARY, (BRONZE, "audit_violations"), ("rule",),
           "One row per rule: how many events it looked at, and how often it was broken."),
    _gold(throughput, _G.THROUGHPUT, ("messages", "attempts"), (*_MAILBOX, "minute"),
          "What went through each mailbox, minute by minute."),
    _gold(latency, _G.LATENCY, ("messages",), (*_MAILBOX, "priority", "day"),
          "How long messages take, by receiver, priority and day."),
    _gold(backlog, _G.BACKLOG, ("messages", "agents"), (*_MAILBOX, "minute"),
          "How many messages each mailbox held, minute by minute."),
    _gold(failure_rates, _G.FAILURE_RATES, ("messages", "attempts", "agents"), (*_MAILBOX, "code"),
          "How often attempts fail, by class of error, with the predicted beside the observed loss."),
    _gold(sizing, _G.SIZING, ("messages", "attempts", "agents"), _MAILBOX,
          "How many workers a mailbox needs, and how much room."),
    _gold(split_advice, _G.SPLIT_ADVICE, ("messages", "backlog"), _MAILBOX,
          "Which mailboxes to think of splitting."),
    _gold(contract_violations, _G.CONTRACT_VIOLATIONS, ("messages", "attempts"),
          (*_MAILBOX, "code", "violation"),
          "Where failures were treated otherwise than the default failure contract says."),
    _gold(dead_letters_daily, _G.DEAD_LETTERS_DAILY, ("dead_letters",), (*_MAILBOX, "day", "reason", "code"),
          "Dead letters by day and cause, with first and last seen and an example."),
    _gold(alert_history, _G.ALERT_HISTORY, ("messages", "attempts", "backlog", "dead_letters"),
          ("rule", *_MAILBOX, "started_at"), "When the five alert rules would have fired."),
    _gold(agent_scorecards, _G.AGENT_SCORECARDS, ("messages", "attempts", "agents"), ("partition", "address"),
          "How each agent does, as sender and as receiver."),
    _gold(message_traces, _G.MESSAGE_TRACES, ("traces",), ("partition", "trace_id"),
          "One row per trace: how long it took, through how many hands, how it ended."),
    _gold(duplicates_waste, _G.DUPLICATES_WASTE, ("attempts",), (*_MAILBOX, "day"),
          "Work done twice, and work that could not succeed."),
    _gold(cost, _G.COST, ("messages",), ("partition", "agent", "day", "type", "outcome"),
          "What outcomes cost, where messages say what they used."),
    _gold(task_outcomes, _G.TASK_OUTCOMES, ("tasks", "steps"), (*_WORKFLOW, "day"),
          "Tasks submitted and ended, by workflow and day."),
    _gold(workflow_latency, _G.WORKFLOW_LATENCY, ("tasks", "steps"), (*_WORKFLOW, "kind", "step", "day"),
          "How long tasks and their steps take, by workflow, step and day."),
    _gold(step_retries, _G.STEP_RETRIES, ("step_attempts",), ("partition", "agent", "day"),
          "How often attempts at steps fail or are abandoned, by agent and day."),
    _gold(critical_paths, _G.CRITICAL_PATHS, ("tasks", "steps"), (*_TASK, "place"),
          "Of each task that ended, the steps that decided how long it took."),
    _gold(critical_steps, _G.CRITICAL_STEPS, ("critical_paths",), (*_WORKFLOW, "step"),
          "Which steps a workflow's time goes into."),
    _gold(task_cost, _G.TASK_COST, ("step_attempts",), (*_TASK, "agent", "day"),
          "What tasks cost, by agent and day, where holders report their usage."),
)  # fmt: skip
"""Every table stands after all of its inputs."""


def table(name: str) -> Table:
    """The table of that name; `KeyError` for any other."""
    for each in TABLES:
        if each.name == name:
            return each
    raise KeyError(f"there is no table {name!r}; tables are {', '.join(each.name for each in TABLES)}")


def build_all(
    bronze: DataFrame, keep: Callable[[Table, DataFrame], DataFrame] | None = None
) -> dict[str, DataFrame]:
    """Build every table from one bronze. `keep` may store each (cache, or write and read) for later ones."""
    made: dict[str, DataFrame] = {BRONZE: bronze}
    for each in TABLES:
        built = each.build(**{name: made[name] for name in each.inputs})
        made[each.name] = built if keep is None else keep(each, built)
    del made[BRONZE]
    return made
