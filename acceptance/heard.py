"""What a logger says during a run, kept instead of printed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Lines(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, message_id: str, final_state: str) -> list[logging.LogRecord]:
        return [
            record
            for record in self.records
            if getattr(record, "message_id", None) == message_id
            and getattr(record, "final_state", None) == final_state
        ]


@contextmanager
def heard(name: str) -> Iterator[Lines]:
    """What a logger says meanwhile; nothing of it reaches the terminal."""
    logger, lines = logging.getLogger(name), Lines()
    before = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        logger.level, logger.propagate = before
