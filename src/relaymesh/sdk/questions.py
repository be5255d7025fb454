"""Questions: their correlation ids, and what counts as an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaymesh.errors import NoAnswer
from relaymesh.wire.envelope import check_text

__all__ = ["asked_under", "checked_answer"]


def asked_under(fields: dict[str, Any], new_ids: Callable[[int], list[str]]) -> tuple[str, bool]:
    """The correlation id of a question, taken out of its fields, and whether it was generated here.

    A question with a given id uses it as its correlation id. So if it is asked again, even after a crash, it
    gets the same answer.
    """
    given, name = fields.pop("correlation_id", None), "correlation_id"
    if given is None:
        given, name = fields.get("id"), "id"
    return (new_ids(1)[0], True) if given is None else (check_text(given, name), False)


def checked_answer(answer: Any, to: str) -> None:
    """Raise `NoAnswer` when the message is the mesh's notice that no answer will come."""
    if answer.type == "nack":
        error = answer.content["error"]
        raise NoAnswer(
            f"{to} will not answer question {answer.content['originalMessageId']}:"
            f" {error['code']} {error['message']}".rstrip(),
            hint="relaymesh dlq list shows the question, if it is a dead letter",
        )
