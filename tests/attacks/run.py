"""One run: a node, a victim, attackers beside it, and what came of it."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.attacks.catalogue import ATTACKS, Attack
from tests.attacks.children import Child
from tests.attacks.node import Node, Watch
from tests.attacks.verdict import EXCESS_BYTES_MAX, P99_MS_MAX, TIMES_MAX, Latency, Verdict

WARM_UP_S = 0.5
AUDIT_S = 0.3
"""Lines of the audit are written within 100 ms."""
HEALTH_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long each phase lasts, how often the victim sends, and what the attackers may use of a processor.

    `share` is of one processor and of all attackers together: on another machine they would use none of the
    node's. `noise`: the p99 that is allowed is at least so many times what it was before the attack; 0 allows
    100 ms and nothing else.
    """

    seconds: float = 10.0
    base_s: float = 5.0
    after_s: float = 3.0
    rate: float = 40.0
    http_rate: float = 10.0
    share: float = 1.0
    noise: float = 0.0


@dataclass
class Phase:
    """From `began` to `ended` by the clock that all processes of a machine share."""

    began: float = 0.0
    ended: float = 0.0

    def latency(self, notes: dict[str, Any]) -> Latency:
        return Latency(self._of(notes["trips"]), self._of(notes["requests"]))

    def _of(self, samples: list[tuple[float, float]]) -> list[float]:
        return [took * 1000 for due, took in samples if self.began <= due < self.ended]


@dataclass
class Seen:
    """What the phases of a run left behind, before it is judged."""

    notes: dict[str, Any]
    base: Phase
    attacked: Phase
    control: Phase | None
    attackers: dict[str, dict[str, Any]]
    peak_bytes: int
    excess_bytes: int
    after_bytes: int
    reconnects: int
    answers: bool


def alone(name: str, plan: Plan) -> Verdict:
    """One attack beside the victim."""
    seen = _run({name: ATTACKS[name]}, plan, control=False)
    verdict = _verdict(name, seen)
    allowed = max(P99_MS_MAX, plan.noise * verdict.base.worst_p99)
    verdict.claim(f"the victim's p99 is below {allowed:.0f} ms", verdict.attacked.worst_p99 < allowed)
    return verdict


def together(plan: Plan, names: list[str] | None = None) -> Verdict:
    """All attacks at once; then as much processor load that does not touch the node."""
    seen = _run({name: ATTACKS[name] for name in names or ATTACKS}, plan, control=True)
    verdict = _verdict("all at once", seen)
    assert verdict.control is not None
    allowed = TIMES_MAX * verdict.control.worst_p99
    verdict.claim(
        f"the victim's p99 is at most {TIMES_MAX:g} times {verdict.control.worst_p99:.0f} ms, "
        "that beside an equal load",
        verdict.attacked.worst_p99 <= allowed,
    )
    return verdict


def baseline(plan: Plan) -> Verdict:
    """Nobody attacks: what the victim sees of this machine."""
    seen = _run({}, replace(plan, after_s=0.0), control=False)
    verdict = _verdict("no attack", seen)
    verdict.claim(f"the victim's p99 is below {P99_MS_MAX:.0f} ms", seen_p99(verdict) < P99_MS_MAX)
    return verdict


def seen_p99(verdict: Verdict) -> float:
    return max(verdict.base.worst_p99, verdict.attacked.worst_p99)


def _verdict(name: str, seen: Seen) -> Verdict:
    notes, errors = seen.notes, dict(seen.notes["errors"])
    if seen.reconnects:
        errors["reconnects"] = seen.reconnects
    verdict = Verdict(
        name=name,
        base=seen.base.latency(notes),
        attacked=seen.attacked.latency(notes),
        control=None if seen.control is None else seen.control.latency(notes),
        peak_bytes=seen.peak_bytes,
        excess_bytes=seen.excess_bytes,
        after_bytes=seen.after_bytes,
        errors=errors,
        attackers=seen.attackers,
    )
    for attacker, did in seen.attackers.items():
        tried = did["done"] + did["refused"] + did["cut"]
        verdict.claim(f"{attacker} attacked", tried > 0 or bool(did["skipped"]))
    verdict.claim("nothing of the victim is refused", not errors)
    verdict.claim(
        f"the node holds at most {EXCESS_BYTES_MAX >> 20} MiB beside counted mail",
        seen.excess_bytes < EXCESS_BYTES_MAX and seen.after_bytes < EXCESS_BYTES_MAX,
    )
    verdict.claim("the node answers when the attackers are gone", seen.answers)
    return verdict


def _run(attacks: dict[str, Attack], plan: Plan, *, control: bool) -> Seen:
    with tempfile.TemporaryDirectory(prefix="relaymesh-attacks-") as folder, ExitStack() as stack:
        place = Path(folder)
        node = stack.enter_context(Node(place / "node"))
        tokens = {name: node.token(f"agent:{name}") for name in ("victim", "peer")}
        attackers_given = {
            name: {"name": name, "port": node.port, "agent": name, "token": _token(node, name, attack)}
            for name, attack in attacks.items()
        }
        node.open_mailboxes(max((attack.mailboxes for attack in attacks.values()), default=0))
        watch = stack.enter_context(Watch(node))
        given = {"url": node.url, "tokens": tokens, "rate": plan.rate, "http_rate": plan.http_rate}
        victim = stack.enter_context(Child("victim", given, place / "victim.log"))
        victim.hear()
        time.sleep(WARM_UP_S)
        base, attacked = Phase(), Phase()
        _during(base, plan.base_s)
        did = _attack(attackers_given, plan, attacked, place)
        loaded = _load(did, plan, place) if control else None
        time.sleep(plan.after_s)
        victim.tell("stop")
        notes = victim.hear()
        after_bytes, answers = _after(node)
        time.sleep(AUDIT_S)
        reconnects = sum(node.connections_opened(token) - 1 for token in tokens.values())
        return Seen(
            notes, base, attacked, loaded, did, watch.peak_bytes, watch.excess_bytes, after_bytes,
            reconnects, answers,
        )  # fmt: skip


def _token(node: Node, name: str, attack: Attack) -> str:
    if attack.credential == "none":
        return ""
    return node.token("read" if attack.credential == "read" else f"agent:{name}")


def _during(phase: Phase, seconds: float) -> None:
    phase.began = time.monotonic()
    time.sleep(seconds)
    phase.ended = time.monotonic()


def _attack(
    attackers: dict[str, dict[str, Any]], plan: Plan, phase: Phase, place: Path
) -> dict[str, dict[str, Any]]:
    """Let all attackers prepare, then attack at the same time; what each of them did."""
    each = {"seconds": plan.seconds, "share": plan.share / max(1, len(attackers))}
    with ExitStack() as stack:
        children = {
            name: stack.enter_context(Child("attacker", {**given, **each}, place / f"{name}.log"))
            for name, given in attackers.items()
        }
        for child in children.values():
            child.hear()
        phase.began = time.monotonic()
        for child in children.values():
            child.tell("go")
        phase.ended = phase.began + plan.seconds
        if not children:
            time.sleep(plan.seconds)
        return {name: child.hear() for name, child in children.items()}


def _load(did: dict[str, dict[str, Any]], plan: Plan, place: Path) -> Phase:
    """As many processes as there were attackers, each using as much of a processor as its attacker did."""
    phase = Phase()
    with ExitStack() as stack:
        children = []
        for given in did.values():
            share = given["processor_s"] / max(given["took_s"], 0.001)
            load = {"seconds": plan.seconds, "share": share}
            children.append(stack.enter_context(Child("load", load, place / "load.log")))
        for child in children:
            child.hear()
        phase.began = time.monotonic()
        for child in children:
            child.tell("go")
        for child in children:
            child.hear()
        phase.ended = time.monotonic()
    return phase


def _after(node: Node) -> tuple[int, bool]:
    """What is resident beside counted mail in the end, and whether the node answers within a second."""
    began = time.monotonic()
    try:
        status, _ = node.ask("GET", "/readyz")
        answers = status == 200 and time.monotonic() - began < HEALTH_S
        return node.resident_bytes() - node.counted_bytes(), answers
    except (OSError, HTTPException, ValueError):
        return node.resident_bytes(), False
