"""Why a connection is closed: the codes that clients see."""

from __future__ import annotations

from enum import IntEnum


class Close(IntEnum):
    """RFC 6455 codes as this protocol uses them."""

    DONE = 1000
    """The client said goodbye."""
    PROTOCOL = 1002
    """An unexpected frame: no `hello`, a second `hello`, or an unsupported version."""
    KIND = 1003
    """A text frame in the MessagePack protocol, or a binary one in the JSON protocol."""
    UNREADABLE = 1007
    """A frame that is no sound JSON or MessagePack. One with a wrong field is answered by a problem."""
    TOO_LARGE = 1009
    """A frame over the limit."""
    BROKEN = 1011
    """A defect of the node; the details are in the log."""
    RESTART = 1012
    """The node stops. Reconnect and resume."""
    TRY_LATER = 1013
    """The client does not read its answers. Reconnect, with less credit."""
    UNAUTHORIZED = 4401
    """No valid token in Authorization or in `hello`; or the guard saw that the token has ended."""


class Ended(Exception):
    """The connection is to be closed, for this reason."""

    def __init__(self, code: Close, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
