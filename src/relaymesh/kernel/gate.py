"""What stands between a mailbox and its receivers: the circuit breaker and the rate limit.

This is the one place that holds deliveries back (`allowance`, `went_out`) and the one place that counts their
outcomes (`note_success`, `note_failure`). A mailbox whose breaker is closed and which has no rate limit is
not `gated` and makes none of these calls.

Messages that a receiver expects by correlation id pass freely and are not counted as outcomes: the receiver
asked for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaymesh.kernel.commands import SetBreaker
from relaymesh.kernel.decision import Decision
from relaymesh.kernel.entries import count_of, entries_of
from relaymesh.kernel.entry import Lease
from relaymesh.kernel.mailbox import Mailbox
from relaymesh.kernel.parcel import Part
from relaymesh.kernel.step import BreakerMoved

# -- holding back -----------------------------------------------------------------------------


def allowance(decision: Decision, mailbox: Mailbox, most: int) -> int:
    """How many deliveries a gated mailbox may give out now, up to `most`."""
    breaker, rate = mailbox.breaker, mailbox.rate
    if breaker.state != "closed":
        most = min(most, breaker.allowance(decision.state.leases))
    if rate is None or not most:
        return most
    tokens = rate.available(decision.now)
    if not tokens and mailbox.ready and rate.waits_until <= decision.now:
        rate.limited += 1
        rate.waits_until = rate.next_at()
        decision.state.wakes.add(mailbox, rate.waits_until)
    return min(most, tokens)


def went_out(mailbox: Mailbox, tokens: range) -> None:
    """A gated mailbox gave leases out: each costs a token of its rate; with a half-open breaker they are
    probes.
    """
    if mailbox.rate is not None:
        mailbox.rate.spend(len(tokens))
    if mailbox.breaker.state == "half-open":
        mailbox.breaker.probes.update(tokens)


def wake(decision: Decision, mailbox: Mailbox) -> None:
    """The time that a mailbox waited for has come: there are tokens, or the breaker lets probes out."""
    state = decision.state
    if state.mailboxes.get(mailbox.address) is not mailbox:
        return
    breaker = mailbox.breaker
    if breaker.state == "open" and breaker.until <= decision.now:
        breaker.try_out()
        _moved(decision, mailbox, f"{mailbox.settings.breaker_probes} probes may go out")
    state.want(mailbox)


# -- outcomes ---------------------------------------------------------------------------------


def note_success(decision: Decision, mailbox: Mailbox, parts: Sequence[Part]) -> None:
    """Count these as breaker successes: the receiver responded. Call it before they settle."""
    breaker = mailbox.breaker
    expected = mailbox.expected
    if breaker.state == "closed" and not expected:
        breaker.succeeded(decision.now, count_of(parts))
        return
    entries = entries_of(parts, mailbox.entries)
    if expected:
        entries = [entry for entry in entries if entry.envelope.correlation_id not in expected]
    if breaker.state == "closed":
        if entries:
            breaker.succeeded(decision.now, len(entries))
        return
    for entry in entries:
        if entry.lease is not None and breaker.probe_passed(entry.lease.token):
            decision.state.want(mailbox)
    if breaker.state == "half-open" and breaker.proven:
        _close(decision, mailbox, f"{breaker.passed} probes passed")


def note_failure(decision: Decision, mailbox: Mailbox, lease: Lease, *, expired: bool) -> None:
    """Count a breaker failure: the receiver failed at something that may yet succeed, or fell silent."""
    breaker = mailbox.breaker
    if breaker.state == "closed":
        if lease.entry.envelope.correlation_id in mailbox.expected:
            return
        why = breaker.failed(decision.now, expired=expired)
    elif breaker.state == "half-open" and lease.token in breaker.probes:
        why = "a probe failed"
    else:
        return
    if why:
        rate = breaker.retry_rate(decision.now)
        breaker.open(decision.now, why)
        mailbox.gated = True
        decision.state.wakes.add(mailbox, breaker.until)
        _moved(decision, mailbox, why, rate)


def note_nothing(decision: Decision, mailbox: Mailbox) -> None:
    """A delivery ended without telling whether the receiver works; if it was a probe, another may go out."""
    if mailbox.gated:
        decision.state.want(mailbox)


# -- by hand ----------------------------------------------------------------------------------


def set_breaker(decision: Decision, command: SetBreaker) -> None:
    """Open until it is closed again by hand, or close at once. Volatile like the breaker itself."""
    mailbox = decision.mailbox(command.mailbox)
    if command.open:
        mailbox.breaker.hold()
        mailbox.gated = True
        _moved(decision, mailbox, "by hand")
    elif mailbox.breaker.state != "closed":
        _close(decision, mailbox, "by hand")
    decision.after_write()


def _close(decision: Decision, mailbox: Mailbox, why: str) -> None:
    mailbox.breaker.close()
    mailbox.gated = mailbox.rate is not None
    _moved(decision, mailbox, why)
    decision.state.want(mailbox)


def _moved(decision: Decision, mailbox: Mailbox, why: str, retry_rate: float = 0.0) -> None:
    breaker, step = mailbox.breaker, decision.step
    if step.moved is None:
        step.moved = []
    step.moved.append(
        BreakerMoved(
            mailbox.address,
            breaker.state,
            why,
            retry_rate,
            mailbox.settings.breaker_retry_rate,
            breaker.until,
        )
    )
