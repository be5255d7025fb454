"""Which versions this server speaks."""

from __future__ import annotations

from relaymesh import __version__
from relaymesh.wire.protocol import PROTOCOL_VERSION

VERSION = __version__

__all__ = ["PROTOCOL_VERSION", "VERSION"]
