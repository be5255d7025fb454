"""Filling: puts content from payload files back into values that leave the core. Called without the core's
lock, and never on an event loop. `has_files` is cheap, and says whether there is anything to do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from relaymesh.errors import JournalDamaged
from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.kernel.envelope import IN_FILE
from relaymesh.kernel.payload import REFERENCE_MARK, full_size
from relaymesh.kernel.pending import Pending
from relaymesh.kernel.tasks.views import StepView, TaskShown, TaskView
from relaymesh.node.payloads import Payloads
from relaymesh.wire.payload import shown_whole, whole

__all__ = ["DAMAGED", "Filled", "fill", "fill_deliveries", "has_files"]

FILLED_BYTES_MAX = 33_554_432
"""The most content of one receive. Deliveries beyond it go back and come with the next receive: they were
never in memory."""
OUTPUTS_BYTES_MAX = 16_777_216
"""The most results of steps that are shown with a task. If there are more, those in files are left out."""
DAMAGED = "payload_damaged"
"""The code of a delivery that could not be made, because the content is missing or damaged."""


class Filled(NamedTuple):
    """Deliveries that may leave, tokens to be given back, and deliveries whose content cannot be read."""

    deliveries: Deliveries
    beyond: Sequence[int]
    damaged: Sequence[tuple[int, JournalDamaged]]


def has_files(answer: Any) -> bool:
    """Whether anything of it is in files."""
    if isinstance(answer, Deliveries):
        return any([each.encoding >= IN_FILE for each in answer.envelopes])  # noqa: C419 - twice as fast
    if isinstance(answer, list):
        return any(has_files(each) for each in answer)
    if isinstance(answer, Pending | DeadLetter):
        return answer.envelope.encoding >= IN_FILE
    if isinstance(answer, TaskShown):
        return has_files(answer.task) or any(_is_filed(step.output) for step in answer.steps)
    return isinstance(answer, TaskView) and _is_filed(answer.result)


def fill(answer: Any, payloads: Payloads) -> Any:
    """The answer with all content. Raises `JournalDamaged` if the result of a task is damaged.

    If the content of a message is damaged, the content says so: see `wire/payload.py`.
    """
    if isinstance(answer, list):
        return [fill(each, payloads) for each in answer]
    if isinstance(answer, Pending | DeadLetter):
        return replace(answer, envelope=shown_whole(answer.envelope, payloads.get))
    if isinstance(answer, TaskShown):
        outputs = sum([full_size(step.output) for step in answer.steps if step.output is not None])
        show = payloads.resolve if outputs <= OUTPUTS_BYTES_MAX else _left_out
        steps = tuple([_with_output(step, show) for step in answer.steps])
        return replace(answer, task=fill(answer.task, payloads), steps=steps)
    if isinstance(answer, TaskView) and answer.result is not None:
        return replace(answer, result=payloads.resolve(answer.result))
    return answer


def fill_deliveries(given: Deliveries, payloads: Payloads) -> Filled:
    """Deliveries with their content, as many as fit into one receive."""
    count = len(given) if given.settled else _portion(given)
    envelopes = list(given.envelopes[:count])
    damaged: dict[int, JournalDamaged] = {}
    for i, envelope in enumerate(envelopes):
        if envelope.encoding >= IN_FILE:
            try:
                envelopes[i] = whole(envelope, payloads.get)
            except JournalDamaged as error:
                damaged[i] = error
    filled = replace(given.first(count), envelopes=envelopes)
    if damaged:
        filled = _without(filled, damaged.keys())
    return Filled(filled, given.tokens[count:], [(given.tokens[i], error) for i, error in damaged.items()])


def _portion(given: Deliveries) -> int:
    """How many of the first fit, at least one."""
    left = FILLED_BYTES_MAX
    for count, envelope in enumerate(given.envelopes):
        left -= envelope.size
        if left < 0 and count:
            return count
    return len(given)


def _without(given: Deliveries, left_out: Any) -> Deliveries:
    """The same without these rows."""
    kept = [i for i in range(len(given)) if i not in left_out]
    columns = {
        name: [column[i] for i in kept]
        for name in Deliveries.__struct_fields__
        if isinstance(column := getattr(given, name), Sequence)
        and not isinstance(column, str)
        and name != "lane_keys"
        and len(column) == len(given)
    }
    return replace(given, **columns)


def _is_filed(value: bytes | None) -> bool:
    return value is not None and REFERENCE_MARK in value


def _left_out(_text: bytes) -> None:
    return None


def _with_output(step: StepView, show: Callable[[bytes], bytes | None]) -> StepView:
    return replace(step, output=show(step.output)) if _is_filed(step.output) else step  # type: ignore[arg-type]
