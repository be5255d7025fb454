"""One attacker, in a process of its own: prepares, says so, waits for the word, attacks for its time."""

from __future__ import annotations

import os
import signal
import time
from typing import NoReturn

from tests.attacks.catalogue import ATTACKS, Attack
from tests.attacks.children import commands, say
from tests.attacks.pace import Pace
from tests.attacks.target import Attacking, Impossible, Target

NICENESS = 10
"""An attacker on another machine would take no processor from the node and its clients."""
PREPARE_S = 120
HOLD_S = 0.05
CUT_PAUSE_S = 0.01


class Over(BaseException):
    """The time is over, whatever the attack is doing."""


def main() -> None:
    lines = commands()
    given = next(lines)
    os.nice(NICENESS)
    signal.signal(signal.SIGALRM, _over)
    signal.alarm(PREPARE_S)
    attack = ATTACKS[given["name"]]
    target = Target(given["port"], given["token"], given["name"])
    attacking = _prepared(attack, target)
    signal.alarm(0)
    say({"ready": True})
    next(lines)
    if not target.tally.skipped:
        _attack(attack, target, attacking, given["seconds"], given["share"])
    say(target.tally.as_json())


def _prepared(attack: Attack, target: Target) -> Attacking | None:
    """The attack, ready to begin; None if the node did not let it prepare: it tries again later."""
    attacking: Attacking | None = None
    try:
        attacking = attack.act(target)
        next(attacking)
    except Impossible as error:
        target.tally.skipped = str(error)
    except (OSError, Over):
        target.tally.cut += 1
        return None
    return attacking


def _attack(
    attack: Attack, target: Target, attacking: Attacking | None, seconds: float, share: float
) -> None:
    pace = Pace(share)
    target.tally.bytes = 0  # those before were preparations
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        while True:
            try:
                attacking = attacking or attack.act(target)
                for _ in attacking:
                    pace.keep()
                    while attack.enough and target.tally.done >= attack.enough:
                        time.sleep(HOLD_S)
            except OSError:
                target.tally.cut += 1
                attacking = None
                pace.keep()
                time.sleep(CUT_PAUSE_S)
    except Over:
        pass
    target.tally.processor_s, target.tally.took_s = pace.processor_s, pace.took_s


def _over(number: int, frame: object) -> NoReturn:
    raise Over


if __name__ == "__main__":
    main()
