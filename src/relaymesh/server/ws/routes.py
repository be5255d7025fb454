"""How the audit names the frames of a protocol that ask for work."""

from __future__ import annotations

from typing import Any

import msgspec

from relaymesh.wire import frames


def routes_of(*kinds: type[msgspec.Struct]) -> dict[type[Any], str]:
    """By the class of a frame: the path of the WebSocket, and what the frame asks for."""
    return {kind: f"{frames.PATH} {kind.__struct_config__.tag}" for kind in kinds}
