"""The work as an agent without a model reads it: one JSON object."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.agents.adapter import Work
from relaymesh.wire.content import check_json

__all__ = ["Request", "request_of"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent reads on stdin. Fields may be added; none is removed."""

    content: Any
    """The content of the message; for a step, its input."""
    sender: str
    """Who sent it. The node stamps it; the content cannot change it."""
    type: str
    agent: str
    message_id: str
    run: str
    task: str | None = None
    step: str | None = None
    attempt: int = 1
    """1 for the first one."""
    workspace: str | None = None
    """The working directory. For a script it is the current directory. None: a script gets a new one, a
    worker none.
    """
    time_limit_s: float | None = None
    tokens_left: int | None = None
    cost_left_usd: float | None = None
    time_left_s: float | None = None
    """Until the step or its task is out of time."""


def request_of(work: Work, time_limit_s: float | None) -> bytes:
    """One line of JSON. Raises `InvalidEnvelope` for content that is not valid JSON, because it could
    forge fields."""
    content = check_json(work.content)
    return msgspec.json.encode(
        Request(
            content=msgspec.Raw(content.replace(b"\n", b" ").replace(b"\r", b" ")),
            sender=work.sender,
            type=work.type,
            agent=work.agent,
            message_id=work.message_id,
            run=work.run,
            task=work.task,
            step=work.step,
            attempt=work.attempt,
            workspace=None if work.workspace is None else str(work.workspace),
            time_limit_s=time_limit_s,
            tokens_left=work.tokens_left,
            cost_left_usd=work.cost_left_usd,
            time_left_s=work.time_left_s,
        )
    )
