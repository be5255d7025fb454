"""The protocol `relaymesh.v1.msgpack`: frames as `relaymesh.wire.frames` has them."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from relaymesh.errors import MeshError
from relaymesh.kernel.deliveries import Deliveries
from relaymesh.server.ws import calls
from relaymesh.server.ws.closing import Close, Ended
from relaymesh.server.ws.mistyped import by_op, mistyped
from relaymesh.server.ws.operations import Operations, problem_of
from relaymesh.server.ws.routes import routes_of
from relaymesh.server.ws.sessions import Asked
from relaymesh.wire import frames
from relaymesh.wire.bundles import unbundle
from relaymesh.wire.frames import decode_client, encode

_kinds = by_op(get_args(frames.ClientFrame))


def _decoded(part: bytes | msgspec.Raw) -> Any:
    try:
        return decode_client(part)
    except msgspec.ValidationError as error:
        return mistyped(error, part, msgspec.msgpack.decode, _kinds)


class Binary:
    """Reads and writes MessagePack."""

    subprotocol = frames.SUBPROTOCOL_MSGPACK
    routes = routes_of(frames.Send, frames.Publish, frames.Settle, frames.Reply, frames.Call)
    """The frames that a task of their own works on, and how the audit names them."""

    def read(self, message: Any) -> list[Asked]:
        data = message.get("bytes")
        if data is None:
            raise Ended(Close.KIND, "this protocol has binary frames only")
        try:
            return [(_decoded(part), part) for part in unbundle(data)]
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Ended(Close.UNREADABLE, f"a frame cannot be read: {error}"[:100]) from None

    def event(self, data: bytes) -> dict[str, Any]:
        return {"type": "websocket.send", "bytes": data}

    async def answer(self, on: Operations, frame: Any, size: int) -> bytes:
        """Do what the frame asks for, and answer. `size`: of the frame."""
        if isinstance(frame, frames.Send):
            receipts = await on.send(frame.groups, frame.wait_ms, size)
            on.acted[frame.ref] = {each.sender for _, envelopes in frame.groups for each in envelopes}
            return encode(frames.Receipts(frame.ref, frames.receipt_rows(receipts)))
        if isinstance(frame, frames.Settle):
            return encode(await on.settle(frame))
        if isinstance(frame, frames.Publish):
            receipts = await on.publish(frame.topic, frame.envelopes, frame.wait_ms, size)
            on.acted[frame.ref] = {each.sender for each in frame.envelopes}
            return encode(frames.Receipts(frame.ref, frames.receipt_rows(receipts)))
        if isinstance(frame, frames.Reply):
            receipts = await on.reply(frame.token, frame.groups, size)
            on.acted[frame.ref] = {each.sender for _, envelopes in frame.groups for each in envelopes}
            return encode(frames.Receipts(frame.ref, frames.receipt_rows(receipts)))
        assert isinstance(frame, frames.Call)
        value = await calls.call(
            on, frame.name, lambda kind: msgspec.msgpack.decode(frame.arguments, type=kind)
        )
        if isinstance(value, calls.Page):
            return encode(frames.Result(frame.ref, msgspec.Raw(encode(value.rows)), value.more))
        return encode(frames.Result(frame.ref, msgspec.Raw(encode(value))))

    def deliveries(self, ref: int | None, mailbox: str, given: Deliveries, now: int) -> bytes:  # noqa: ARG002
        return encode(frames.deliveries(ref, mailbox, given))

    def problem(self, ref: int | None, error: MeshError) -> bytes:
        return encode(problem_of(ref, error))

    def frame(self, frame: Any) -> bytes:
        """A frame that is the same in both protocols."""
        return encode(frame)
