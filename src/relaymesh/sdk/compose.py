"""From a caller's arguments to envelopes, grouped by recipient."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from relaymesh.errors import InvalidEnvelope
from relaymesh.kernel.bounds import plain_text, shown
from relaymesh.kernel.envelope import Envelope
from relaymesh.kernel.step import Receipt as KernelReceipt
from relaymesh.sdk.names import Names
from relaymesh.sdk.receipt import Receipt, receipts_of
from relaymesh.wire.content import encode_content
from relaymesh.wire.envelope import build_envelope, parse_delay

NewIds = Callable[[int], list[str]]

OPTIONS = frozenset(
    {
        "id", "type", "priority", "task", "key", "delay_ms", "ttl", "correlation_id", "reply_to",
        "requires_ack", "tags", "max_retries", "trace", "extra",
    }
)  # fmt: skip


class Batch:
    """Checked messages to send, in the order they were given."""

    __slots__ = ("_names", "_order", "groups", "minted", "notes")

    def __init__(
        self,
        sender: str,
        items: Sequence[Mapping[str, Any]],
        new_ids: NewIds,
        limit: int,
        names: Names,
    ) -> None:
        self._names = names
        self.notes: dict[int, str] = {}
        self.minted = True
        by_recipient: dict[str, list[Envelope]] = {}
        order: dict[str, list[int]] = {}
        group: list[Envelope] = []
        positions: list[int] = []
        last_to: object = self
        ids = new_ids(_count(items))
        for i, item in enumerate(items):
            try:
                to, content, plain = item["to"], item["content"], len(item) == 2
            except Exception:
                raise InvalidEnvelope(f"message {i} needs 'to' and 'content'") from None
            if plain:
                data, encoding = encode_content(content, limit)
                envelope = Envelope(ids[i], sender, data, encoding)
            else:
                envelope = self._with_options(i, sender, item, ids[i], limit)
            if to is not last_to:
                address = names.agent(to, "recipient")
                group = by_recipient.setdefault(address, [])
                positions = order.setdefault(address, [])
                last_to = to
            group.append(envelope)
            positions.append(i)
        self.groups = list(by_recipient.items())
        self._order = list(order.values())

    def _with_options(
        self, i: int, sender: str, item: Mapping[str, Any], new_id: str, limit: int
    ) -> Envelope:
        content, options = checked_fields(i, item)
        options.pop("to")
        envelope, note = compose(sender, content, new_id, limit, options, self._names)
        if note is not None:
            self.notes[i] = note
        self.minted = self.minted and envelope.id is new_id
        return envelope

    def receipts(self, given: Sequence[KernelReceipt]) -> list[Receipt]:
        """Receipts came by recipient; return them in the order of the messages."""
        if len(self._order) > 1:
            positions = [i for order in self._order for i in order]
            ordered = sorted(zip(positions, given, strict=True), key=lambda pair: pair[0])
            given = [receipt for _, receipt in ordered]
        return receipts_of(given, self.notes)


def _count(messages: Any) -> int:
    """How many messages a batch has. A string and a dict are not batches."""
    if messages.__class__ is list:
        return len(messages)
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes, bytearray)):
        raise InvalidEnvelope(f"messages must be a list of dicts, not {shown(messages)}")
    try:
        return len(messages)
    except Exception:  # longer than any list, or `len` fails
        raise InvalidEnvelope(f"messages must be a list of dicts, not {shown(messages)}") from None


def chosen_ids(ids: Any) -> frozenset[str]:
    """Ids that a caller names, as a set."""
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Collection):
        raise InvalidEnvelope(f"ids must be a list of strings, not {shown(ids)}")
    try:
        found = list(ids)
    except Exception:
        raise InvalidEnvelope(f"ids must be a list of strings, not {shown(ids)}") from None
    return frozenset([plain_text(id, "id", InvalidEnvelope) for id in found])


def checked_fields(i: int, item: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The content of message `i` and its other fields. Raises for an unknown field."""
    try:
        fields = dict(item)
        content = fields.pop("content")
    except Exception:
        raise InvalidEnvelope(f"message {i} needs 'content'") from None
    unknown = fields.keys() - OPTIONS - {"to"}
    if unknown:
        raise InvalidEnvelope(
            f"message {i} has no field {min(map(str, unknown))!r}",
            hint=f"fields are {', '.join(sorted(OPTIONS))}",
        )
    return content, fields


def compose(
    sender: str, content: Any, new_id: str, limit: int, options: Mapping[str, Any], names: Names
) -> tuple[Envelope, str | None]:
    """One envelope, and a note if its delay was invalid."""
    options = dict(options)
    given = options.pop("id", None)
    if options.get("reply_to") is not None:
        options["reply_to"] = names.agent(options["reply_to"], "reply_to")
    note = parse_delay(options["delay_ms"])[1] if "delay_ms" in options else None
    envelope = build_envelope(sender, content, id=new_id if given is None else given, limit=limit, **options)
    return envelope, note


def compose_all(
    sender: str, messages: Sequence[Mapping[str, Any]], new_ids: NewIds, limit: int, names: Names
) -> tuple[list[Envelope], dict[int, str], bool]:
    """Envelopes for one topic, notes on invalid delays by position, and whether all ids are generated."""
    ids = new_ids(_count(messages))
    envelopes = []
    notes: dict[int, str] = {}
    minted = True
    for i, message in enumerate(messages):
        content, options = checked_fields(i, message)
        if "to" in options:
            raise InvalidEnvelope(f"message {i} has a 'to': a topic's subscribers are its recipients")
        envelope, note = compose(sender, content, ids[i], limit, options, names)
        if note is not None:
            notes[i] = note
        minted = minted and envelope.id is ids[i]
        envelopes.append(envelope)
    return envelopes, notes, minted
