"""The first frame of a connection that was opened without Authorization: a `hello` with a token.

A browser cannot send the header. Until the token is checked the connection counts as one without a
credential: it is closed first when connections run out, may send no more than a `hello`
(`security.connections`), and has LOGIN_S for that.
"""

from __future__ import annotations

import asyncio

from relaymesh.server.exchange import Event, Receive, Send
from relaymesh.server.security.principal import Login
from relaymesh.server.security.refusals import UNAUTHORIZED, Refused
from relaymesh.server.ws.binary import Binary
from relaymesh.server.ws.closing import Close, Ended
from relaymesh.server.ws.text import Text
from relaymesh.wire import frames

LOGIN_S = 10.0
NO_TOKEN = "no credential was given, neither in Authorization nor as `token` of hello"
HINT = "send Authorization: Bearer rm_…, or a hello with `token`; relaymesh token create makes one"


async def logged_in(login: Login, codec: Binary | Text, receive: Receive, send: Send) -> Event | None:
    """The hello as it came, once its token was accepted. None: the connection is refused and closed."""
    try:
        first = await asyncio.wait_for(next_frame(receive), LOGIN_S)
        if first is None:
            return None
        (hello, _), *_ = codec.read(first) or [(None, b"")]
        token = hello.token if isinstance(hello, frames.Hello) else None
        if token is None:
            raise Refused(UNAUTHORIZED, NO_TOKEN)
        login(token)
    except TimeoutError:
        await _close(send, Close.UNAUTHORIZED, "no hello came in time")
    except Ended as ended:
        await _close(send, ended.code, ended.reason)
    except Refused as refused:
        await send(codec.event(codec.frame(_problem(refused))))
        known = refused.refusal is UNAUTHORIZED
        await _close(send, Close.UNAUTHORIZED if known else Close.TRY_LATER, refused.refusal.title)
    else:
        return first
    return None


def _problem(refused: Refused) -> frames.Problem:
    refusal = refused.refusal
    hint = HINT if refusal is UNAUTHORIZED else refusal.hint
    return frames.Problem(refusal.code, refused.detail or refusal.title, hint, refusal.retryable)


async def _close(send: Send, code: Close, reason: str) -> None:
    await send({"type": "websocket.close", "code": int(code), "reason": reason[:100]})


async def next_frame(receive: Receive) -> Event | None:
    """The next frame as it came; None when the client is gone."""
    while True:
        event = await receive()
        kind = event["type"]
        if kind == "websocket.receive":
            return event
        if kind == "websocket.disconnect":
            return None
