"""Which columns of bronze hold what senders and handlers wrote, and what tables read of it.

Needs no pyspark.
"""

from __future__ import annotations

__all__ = ["CONTENT", "EXTRA", "USAGE"]

CONTENT = ("content", "raw", "stack")
"""Null where bronze takes no content."""
USAGE = {"inputTokens": "bigint", "outputTokens": "bigint", "costUsd": "double"}
"""What a message used, as its sender says: names and types of Spark."""

_USAGE = f"struct<{', '.join(f'{name}: {kind}' for name, kind in USAGE.items())}>"
EXTRA = f"struct<usage: {_USAGE}, metadata: struct<usage: {_USAGE}>>"
"""What the tables read of the column `extra`, and all that is in it where bronze takes no content."""
