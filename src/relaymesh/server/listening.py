"""The socket a node listens on."""

from __future__ import annotations

import errno
import socket
import sys

from relaymesh.errors import InvalidSettings
from relaymesh.server.settings import ServerSettings


def listen(settings: ServerSettings) -> socket.socket:
    """A bound socket. Raises `InvalidSettings` with a hint if the address cannot be used."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InvalidSettings(
            f"host {settings.host!r} is no address of this machine: {error}",
            hint="--host 127.0.0.1 listens on this machine alone, 0.0.0.0 on every address that it has",
        ) from None
    bound = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two servers share one port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.set_inheritable(False)
    except (OSError, OverflowError) as error:
        bound.close()
        raise _unavailable(settings, error) from None
    return bound


def _unavailable(settings: ServerSettings, error: Exception) -> InvalidSettings:
    place = f"{settings.host}:{settings.port}"
    if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
        return InvalidSettings(
            f"{place} cannot be listened on: {error.strerror}",
            hint="choose another with --port, or 0 for any",
        )
    return InvalidSettings(
        f"{place} cannot be listened on: {error}", hint="choose an address of this machine with --host"
    )


def url_of(settings: ServerSettings, bound: socket.socket) -> str:
    """The URL for clients on this machine."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"{settings.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
