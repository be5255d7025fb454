"""What is pending, as a look from outside sees it: values, which lead nowhere."""

from __future__ import annotations

DELAYED, READY, LEASED, SETTLED = range(4)
STATE_NAMES = ("delayed", "ready", "leased", "settled")
