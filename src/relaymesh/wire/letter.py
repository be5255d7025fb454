"""A dead letter as the mesh writes it in JSON: in answers of the API, and in the archive."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.dead_letters import DeadLetter
from relaymesh.kernel.records import Failure
from relaymesh.wire.api import DeadLetterBody, FailureBody
from relaymesh.wire.envelope import iso
from relaymesh.wire.protocol import message_json

__all__ = ["failure_body", "letter_body"]


def letter_body(letter: DeadLetter) -> DeadLetterBody:
    return DeadLetterBody(
        dead_sequence=letter.dead_sequence,
        message_id=letter.envelope.id,
        receiver=letter.mailbox,
        sender=letter.envelope.sender,
        reason=letter.reason,
        code=letter.code,
        error=letter.failures[-1].reason if letter.failures else "",
        attempts=letter.attempts,
        redrives=letter.redrives,
        sequence=letter.sequence,
        accepted_at=iso(letter.accepted_at),
        failed_at=iso(letter.at),
        status=letter.status,
        failures=[failure_body(each) for each in letter.failures],
        message=msgspec.Raw(
            message_json(letter.envelope, letter.mailbox, letter.accepted_at, max(0, letter.attempts - 1))
        ),
        redriven_as=letter.redriven_as or msgspec.UNSET,
        topic=msgspec.UNSET if letter.topic is None else letter.topic,
    )


def failure_body(failure: Failure) -> FailureBody:
    return FailureBody(
        attempt=failure.attempt,
        at=iso(failure.at),
        code=failure.code,
        reason=failure.reason,
        stack=failure.stack,
    )
