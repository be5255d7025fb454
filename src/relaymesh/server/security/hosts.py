"""The host names of this server. A page of another site that points its own name at this machine (DNS
rebinding) sends that name in Host, and its own address in Origin: both are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?\Z")


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def own_names(host: str) -> tuple[str, ...]:
    """The name of a server that is bound to `host`; none if it is bound to all addresses."""
    try:
        address = ip_address(host)
    except ValueError:
        return (host,)
    if address.is_unspecified:
        return ()
    return (f"[{host}]",) if address.version == 6 else (host,)


class Hosts:
    """The loopback names, the configured names, and the port they go with.

    `names` are host names, or `name:port` where a proxy in front listens elsewhere.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        given = [_split(name) for name in names]
        self._names = {host for host, port in given if port is None} | set(LOOPBACK_NAMES)
        self._pairs = {(host, port) for host, port in given if port is not None}

    def knows_host(self, value: str, scheme: str, server_port: int | None) -> bool:
        """Whether a Host header names this server, on the port the request came in on."""
        try:
            host, port = _split(value)
        except ValueError:
            return False
        port = DEFAULT_PORTS[scheme] if port is None else port
        return (host, port) in self._pairs or (
            host in self._names and (server_port is None or port == server_port)
        )

    def knows_origin(self, value: str, scheme: str, server_port: int | None) -> bool:
        """Whether an Origin header is this server's own. `null`, and what is no origin, is not."""
        web = {"ws": "http", "wss": "https"}.get(scheme, scheme)
        own = value.removeprefix(f"{web}://")
        return own != value and self.knows_host(own, web, server_port)


def _split(value: str) -> tuple[str, int | None]:
    match = _HOST.match(value)
    if match is None:
        raise ValueError(f"{value!r} is no host")
    port = None if match[2] is None else int(match[2])
    return match[1].lower().removesuffix("."), port
