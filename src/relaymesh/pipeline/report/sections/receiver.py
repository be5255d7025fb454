"""How queries name a mailbox: by its address, and by its journal too where that is not the first."""

from __future__ import annotations

__all__ = ["RECEIVER"]

RECEIVER = "mailbox || CASE partition WHEN 0 THEN '' ELSE ' @' || partition END"
