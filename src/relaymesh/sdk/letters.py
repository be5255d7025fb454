"""Dead letters as the SDK shows them, and how they are selected."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from relaymesh.errors import InvalidEnvelope, InvalidSettings, InvalidValue, NotFound
from relaymesh.kernel import dead_letters
from relaymesh.kernel.address import name_of
from relaymesh.kernel.bounds import COUNT_MAX, plain_text, shown, whole
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.records import Failure
from relaymesh.sdk.compose import chosen_ids
from relaymesh.sdk.endings import text_of
from relaymesh.wire.content import decode_content, encode_content
from relaymesh.wire.envelope import envelope_json, iso, when


class DeadLetter(msgspec.Struct, frozen=True):
    """One dead letter: a message that was given up, with everything needed to decide what to do about it."""

    letter: dead_letters.DeadLetter

    @property
    def message_id(self) -> str:
        return self.letter.envelope.id

    @property
    def receiver(self) -> str:
        """The address of the mailbox whose dead letter it is."""
        return self.letter.mailbox

    @property
    def topic(self) -> str | None:
        """For the dead letter of a subscription: the topic to which it was published, or the pattern of the
        subscription if the topic is not known.
        """
        if self.letter.topic is not None:
            return name_of(self.letter.topic)
        pattern, colon, _ = name_of(self.letter.mailbox).partition(":")
        return pattern if colon else None

    @property
    def subscriber(self) -> str:
        """The name of the subscription or agent."""
        name = name_of(self.letter.mailbox)
        return name.partition(":")[2] or name

    @property
    def sender(self) -> str:
        return self.letter.envelope.sender

    @property
    def reason(self) -> str:
        """`retries_exhausted`, `not_retryable`, `ttl_expired`, `mailbox_full` or `deferred_too_often`."""
        return self.letter.reason

    @property
    def code(self) -> str:
        """The error code of the last failure."""
        return self.letter.code

    @property
    def error(self) -> str:
        """The text of the last failure."""
        return self.letter.failures[-1].reason if self.letter.failures else ""

    @property
    def attempts(self) -> int:
        return self.letter.attempts

    @property
    def failures(self) -> list[Failure]:
        """Every failed attempt: attempt, at, code, reason, stack."""
        return self.letter.failures

    @property
    def content(self) -> Any:
        return decode_content(self.letter.envelope.content, self.letter.envelope.encoding)

    @property
    def envelope(self) -> Envelope:
        return self.letter.envelope

    @property
    def redrives(self) -> int:
        """How often this message was redriven before it became this dead letter."""
        return self.letter.redrives

    @property
    def dead_sequence(self) -> int:
        return self.letter.dead_sequence

    @property
    def failed_at(self) -> datetime:
        return when(self.letter.at)

    @property
    def status(self) -> str:
        return self.letter.status

    @property
    def redriven_as(self) -> str | None:
        """The id of the edited message that was redriven in its place; None if there was none."""
        return self.letter.redriven_as or None

    @property
    def key(self) -> tuple[str, int]:
        return self.letter.mailbox, self.letter.dead_sequence

    def as_json(self) -> dict[str, Any]:
        """The same fields for `--json` and the console."""
        letter = self.letter
        return {
            "message_id": self.message_id,
            "receiver": self.receiver,
            "topic": self.topic,
            "subscriber": self.subscriber,
            "sender": self.sender,
            "reason": self.reason,
            "code": self.code,
            "error": self.error,
            "attempts": self.attempts,
            "redrives": self.redrives,
            "dead_sequence": self.dead_sequence,
            "failed_at": iso(letter.at),
            "status": self.status,
            "redriven_as": self.redriven_as,
            "failures": [
                {
                    "attempt": f.attempt,
                    "at": iso(f.at),
                    "code": f.code,
                    "reason": f.reason,
                    "stack_trace": f.stack,
                }
                for f in letter.failures
            ],
            "message": envelope_json(
                letter.envelope, letter.mailbox, letter.accepted_at, max(0, letter.attempts - 1)
            ),
        }


class Redriven(msgspec.Struct, frozen=True):
    """The result of redriving one dead letter. `sequence` is None for a dry run, or if it was redriven
    before.
    """

    message_id: str
    receiver: str
    to: str
    sequence: int | None
    redriven_as: str | None = None
    """The new id of an edited message, from this redrive or an earlier one; None: it keeps `message_id`."""


Which = str | DeadLetter | Iterable[str | DeadLetter] | None


def select(
    letters: Iterable[dead_letters.DeadLetter],
    *,
    receiver: str | None = None,
    sender: str | None = None,
    reason: str | None = None,
    code: str | None = None,
    ids: frozenset[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    status: str | None = "pending",
    limit: int | None = None,
) -> list[DeadLetter]:
    """The letters that match every given field; `receiver` may be a full address or a plain name."""
    receiver, sender = _word(receiver, "receiver"), _word(sender, "sender")
    reason, code, status = _word(reason, "reason"), _word(code, "code"), _word(status, "status")
    since, until = _moment(since, "since"), _moment(until, "until")
    ids = None if ids is None else chosen_ids(ids)
    limit = None if limit is None else whole(limit, "limit", 0, COUNT_MAX)
    chosen: list[DeadLetter] = []
    for letter in letters:
        if limit is not None and len(chosen) >= limit:
            break
        fits = (
            (status is None or letter.status == status)
            and (receiver is None or receiver in (letter.mailbox, name_of(letter.mailbox)))
            and (sender is None or sender in (letter.envelope.sender, name_of(letter.envelope.sender)))
            and (reason is None or letter.reason == reason)
            and (code is None or letter.code == code)
            and (ids is None or letter.envelope.id in ids)
            and (since is None or when(letter.at) >= since)
            and (until is None or when(letter.at) < until)
        )
        if fits:
            copy = msgspec.structs.replace(letter, failures=list(letter.failures))
            chosen.append(DeadLetter(copy))  # a copy: a caller may change it
    return chosen


def _word(value: Any, what: str) -> str | None:
    return None if value is None else plain_text(value, what)


def _moment(value: Any, what: str) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidValue(
            f"{what} must be a datetime with a time zone, not {shown(value)}",
            hint="datetime.now(UTC) has one; value.replace(tzinfo=UTC) adds it",
        )
    return value


def choose(
    letters: Sequence[dead_letters.DeadLetter], which: Which, filters: dict[str, Any]
) -> list[DeadLetter]:
    """The letters that a redrive or purge selects. It is an error to give neither letters nor a filter."""
    if which is None and not filters:
        raise InvalidSettings(
            "which dead letters? name ids, letters or a filter",
            hint="receiver='coder', or status='pending' for all",
        )
    if which is None:
        return select(letters, **filters)
    items = _named(which)
    named = frozenset(item for item in items if isinstance(item, str))
    found = select(letters, ids=named, **{"status": None, **filters}) if named else []
    missing = named - {letter.message_id for letter in found}
    if missing:
        raise NotFound(
            f"there is no dead letter of message {shown(min(missing))}",
            hint="mesh.dead_letters() lists them; on the command line: relaymesh dlq list",
        )
    newest: dict[tuple[str, str], DeadLetter] = {(x.receiver, x.message_id): x for x in found}
    return [*(item for item in items if isinstance(item, DeadLetter)), *newest.values()]


def _named(which: Any) -> list[str | DeadLetter]:
    """The ids and letters that a caller named."""
    try:
        items = [which] if isinstance(which, (str, DeadLetter)) else list(which)
    except Exception:
        raise InvalidValue(f"which must be ids, dead letters or None, not {shown(which)}") from None
    return [item if isinstance(item, DeadLetter) else plain_text(item, "which") for item in items]


def edited_messages(
    letters: Sequence[DeadLetter], edit: Any, new_ids: Callable[[int], list[str]], limit: int
) -> list[Envelope | None] | None:
    """The message that replaces each letter's own, under a new id; None for a letter that is not edited.

    `edit` is a function from content to content, or the new content itself. The function runs here, in the
    caller's thread and without a lock: it may use the mesh and be slow. The redrive itself checks what
    happened to a letter meanwhile.
    """
    if edit is None:
        return None
    edited: list[Envelope | None] = []
    seen: set[tuple[str, int]] = set()
    for letter in letters:
        again = letter.status != "pending" or letter.key in seen
        seen.add(letter.key)
        edited.append(None if again else _edited_message(letter.envelope, edit, new_ids, limit))
    return edited


def _edited_message(
    envelope: Envelope, edit: Any, new_ids: Callable[[int], list[str]], limit: int
) -> Envelope:
    data, encoding = encode_content(_edited_content(edit, envelope), limit)
    return msgspec.structs.replace(
        envelope,
        id=new_ids(1)[0],
        content=data,
        encoding=encoding,
        origin=envelope.origin or envelope.id,
    )


def _edited_content(edit: Any, envelope: Envelope) -> Any:
    if not callable(edit):
        return edit
    try:
        content = edit(decode_content(envelope.content, envelope.encoding))
    except Exception as error:
        raise InvalidEnvelope(
            f"editing {envelope.id!r} failed: {type(error).__name__}: {text_of(error)}; nothing was redriven",
            hint="correct the edit function and redrive again",
        ) from error
    if content is None:
        raise InvalidValue(
            f"edit returned None for {envelope.id!r}; nothing was redriven",
            hint="return the new content; for JSON null give edit=msgspec.Raw(b'null')",
        )
    if inspect.isawaitable(content):
        if inspect.iscoroutine(content):
            content.close()
        raise InvalidValue(
            f"edit returned an awaitable for {envelope.id!r}; nothing was redriven",
            hint="edit must be a plain function that returns the new content",
        )
    return content


def redriven(
    letters: Sequence[DeadLetter],
    target: str | None,
    sequences: Sequence[int | None],
    edited: Sequence[Envelope | None] | None,
) -> list[Redriven]:
    """The result for each letter: its mailbox, its sequence and its id."""
    return [
        Redriven(
            letter.message_id,
            letter.receiver,
            target or letter.receiver,
            sequence,
            letter.redriven_as if sequence is None or envelope is None else envelope.id,
        )
        for letter, sequence, envelope in zip(
            letters, sequences, edited or [None] * len(letters), strict=True
        )
    ]
