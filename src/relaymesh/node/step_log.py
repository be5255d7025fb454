"""The one place where failures, late arrivals, breakers and suspensions are logged, with the same fields."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from relaymesh.kernel.address import name_of
from relaymesh.kernel.moment import NEVER
from relaymesh.kernel.step import Arrived, BreakerMoved, Ended, NotUndone, Step, SubscriptionMoved
from relaymesh.wire.envelope import iso

log = logging.getLogger("relaymesh.delivery")
alerts = logging.getLogger("relaymesh.alert")


def log_step(step: Step) -> None:
    dead: dict[tuple[str, str, bool], list[Ended]] = {}
    for ended in step.ended or ():
        _log_ended(ended)
        if ended.final_state == "dead_letter":
            dead.setdefault((ended.mailbox, ended.code, ended.alert), []).append(ended)
    for letters in dead.values():
        _alert(letters)
    for moved in step.moved or ():
        if isinstance(moved, BreakerMoved):
            _log_breaker(moved)
        else:
            _log_subscription(moved)
    forced = 0
    for arrived in step.arrived or ():
        forced += arrived.forced
        if log.isEnabledFor(logging.INFO):
            _log_arrived(arrived)
    if forced:
        log.info("forced all delayed messages out", extra={"count": forced})


def fields_of(ended: Ended) -> dict[str, object]:
    """`topic, message_id, subscriber, attempt, error_code, retryable, final_state`."""
    name = name_of(ended.mailbox)
    topic, colon, subscriber = name.partition(":")
    return {
        "topic": topic if colon else "",
        "message_id": ended.message_id,
        "subscriber": subscriber if colon else name,
        "attempt": ended.attempt,
        "error_code": ended.code,
        "retryable": ended.retryable,
        "final_state": ended.final_state,
    }


def _log_ended(ended: Ended) -> None:
    fields = fields_of(ended)
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    level = logging.INFO if ended.final_state in ("success", "deferred") else logging.WARNING
    log.log(level, "delivery ended: %s reason=%s", text, ended.reason, extra=fields)


def _alert(letters: list[Ended]) -> None:
    """Log every dead letter: one line for those with the same cause in the same mailbox at the same time.

    The level is error if the contract asks for an alert, else warning.
    """
    first, count = letters[0], len(letters)
    fields = fields_of(first)
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    what = "dead letter" if count == 1 else f"{count} dead letters, the first"
    level = logging.ERROR if first.alert else logging.WARNING
    alerts.log(level, "%s: %s reason=%s", what, text, first.reason, extra={**fields, "count": count})


def log_not_undone(failed: Sequence[NotUndone]) -> None:
    """Alert: what a step did stays done, although its task ended without success. A dead letter has an alert
    of its own.
    """
    for one in failed:
        fields = {
            "task": one.task,
            "step": one.step,
            "agent": name_of(one.mailbox) if one.mailbox else "",
            "status": one.status,
            "error_code": one.code,
        }
        text = " ".join(f"{name}={value}" for name, value in fields.items())
        alerts.error("not undone: %s reason=%s", text, one.reason, extra={**fields, "reason": one.reason})


def _log_breaker(moved: BreakerMoved) -> None:
    until = ""
    if moved.state == "open":
        until = "closed by hand" if moved.until == NEVER else iso(moved.until)
    fields = {
        "mailbox": moved.mailbox,
        "breaker": moved.state,
        "why": moved.why,
        "retry_rate": round(moved.retry_rate, 4),
        "threshold": moved.threshold,
        "until": until,
    }
    level = logging.WARNING if moved.state == "open" else logging.INFO
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    alerts.log(level, "circuit breaker: %s", text, extra=fields)


def _log_subscription(moved: SubscriptionMoved) -> None:
    fields = {"mailbox": moved.mailbox, "suspended": bool(moved.reason), "reason": moved.reason}
    if moved.reason:
        text = "a subscription is suspended, publishes skip it: mailbox=%s reason=%s"
        alerts.error(text, moved.mailbox, moved.reason, extra=fields)
    else:
        alerts.info("a subscription is resumed: mailbox=%s", moved.mailbox, extra=fields)


def _log_arrived(arrived: Arrived) -> None:
    fields = {
        "id": arrived.message_id,
        "to": arrived.mailbox,
        "scheduled_at": iso(arrived.scheduled_at),
        "actual_delivery_at": iso(arrived.arrived_at),
        "delay_drift_ms": arrived.arrived_at - arrived.scheduled_at,
        "forced": arrived.forced,
    }
    log.info("delayed message delivered: %s", " ".join(f"{k}={v}" for k, v in fields.items()), extra=fields)
