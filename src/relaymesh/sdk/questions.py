"""Questions: under which correlation id they are asked, and what an answer must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaymesh.errors import NoAnswer
from relaymesh.wire.envelope import check_text

__all__ = ["asked_under", "checked_answer"]


def asked_under(fields: dict[str, Any], new_ids: Callable[[int], list[str]]) -> tuple[str, bool]:
    """The correlation id of a question, taken out of its fields, and whether it was made just now.

    A question with an id of its own is asked under it: asked again, after a crash too, it has the same
    answer.
    """
    given, name = fields.pop("correlation_id", None), "correlation_id"
    if given is None:
        given, name = fields.get("id"), "id"
    return (new_ids(1)[0], True) if given is None else (check_text(given, name), False)


def checked_answer(answer: Any, to: str) -> None:
    """Raise `NoAnswer` when what came back is the word that there will be none."""
    if answer.type == "nack":
        error = answer.content["error"]
        raise NoAnswer(
            f"{to} will not answer question {answer.content['originalMessageId']}:"
            f" {error['code']} {error['message']}".rstrip(),
            hint="relaymesh dlq list shows the question, if it is a dead letter",
        )
