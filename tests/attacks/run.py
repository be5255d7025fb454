"""The runs, each with what is claimed of it."""

from __future__ import annotations

from dataclasses import replace

from tests.attacks.catalogue import ATTACKS
from tests.attacks.stage import Plan, Stage
from tests.attacks.verdict import Verdict, judged_alone, judged_base, judged_together


def baseline(plan: Plan) -> Verdict:
    """Nobody attacks: what the victim sees of this machine."""
    with Stage(replace(plan, after_s=0.0)) as stage:
        return judged_base(stage.attack([]))


def alone(name: str, plan: Plan) -> Verdict:
    """One attack on a node of its own."""
    with Stage(plan) as stage:
        return judged_alone(name, stage.attack([name]))


def together(plan: Plan, names: list[str] | None = None) -> Verdict:
    """All attacks at once; then as much processor load that does not touch the node."""
    with Stage(plan) as stage:
        return judged_together(stage.attack(names or list(ATTACKS), control=True))
