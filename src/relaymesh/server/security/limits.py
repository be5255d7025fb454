"""Settings of the guard. Parsed once, at the edge; each with its default and what raising it costs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

from relaymesh.errors import InvalidSettings
from relaymesh.server.security.hosts import Hosts
from relaymesh.server.security.proxies import Proxies

DESCRIPTORS_RESERVED = 64
"""For the journal, the store, the audit and the listening sockets: connections never take these."""

BURST_SECONDS = 2.0
"""How many seconds' worth of writes may come at once, if no burst is set."""
_MAY_BE_NONE = frozenset({"kept_bytes_max", "write_rate", "write_burst", "bulk_rate"})


@dataclass(frozen=True, kw_only=True, slots=True)
class SecuritySettings:
    """Frozen and checked on construction.

    allow_hosts: names this server is called by beside the loopback names, as `name` (on its own port) or
        `name:port` (as seen through a proxy). Each is a name that a web page could be served under.
    proxies: addresses or networks whose X-Forwarded-* headers are believed. A host in them can claim any
        remote address in the audit.
    connections_max: connections open at once; one credential has at most half of them. Lowered at start to
        what the process may open less 64. Each costs about 30 kB when idle. When all are open, the oldest
        that has shown no valid token makes room for the next; if all have, the next is answered 503.
    header_bytes_max, headers_max: the largest head of a request, and how many headers in it.
    header_seconds: time for the head of a request. Raising it lets slow clients hold connections longer.
    body_seconds, body_rate_min: a body must come at this rate, in bytes a second, after a start of so many
        seconds. Lowering the rate lets slow clients hold connections longer.
    bodies_bytes_max: bytes of bodies being read, of all requests together. Costs that much memory.
    credential_bytes_max: bytes of one credential that are under way: bodies and WebSocket messages that came
        and are not worked on to the end (of these at most a quarter of bodies_bytes_max); and as many of
        answers that are kept or not yet read. Costs up to twice that memory for each credential.
    kept_bytes_max: bytes of mail that the node keeps for one sender: messages that are not settled, dead
        letters, what it subscribed to and expects. Beyond it its sends are answered 429. 0 is no limit.
    write_seconds: a reader that takes less than 64 KiB of what waits for it in this time is disconnected.
    write_buffer_bytes_max: the most that may wait for one reader who does not read.
    fragments_max: fragments in one WebSocket message.
    write_rate: writes a second for each credential. One write is one request or WebSocket frame (pings too),
        25 messages, or 16 KiB, whichever is most. Beyond it HTTP is answered 429, and a WebSocket is read
        more slowly. 0 is no limit.
    write_burst: writes that may come at once; 0 is twice the rate.
    bulk_rate: bytes a second, of all connections together that send more than 64 KiB in a tenth of a second,
        and of answers of more than 64 KiB. Others are not held up: while the node is late for them, bulk gets
        less, down to a 64th. Raising it lets large bodies take more of the node's one processor: about 2 ms a
        megabyte for reading, and 6 ms for checking. 0 is no limit.
    get_compat: accept writes as GET under /v1/compat, for programs that can do nothing else. Each is audited.
    audit_bytes_max, audit_files_max: when the audit log begins a new file, and how many it keeps.
    """

    allow_hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    connections_max: int = 4096
    header_bytes_max: int = 32_768
    headers_max: int = 100
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    body_rate_min: int = 16_384
    bodies_bytes_max: int = 268_435_456
    credential_bytes_max: int = 33_554_432
    kept_bytes_max: int = 536_870_912
    write_seconds: float = 30.0
    write_buffer_bytes_max: int = 67_108_864
    fragments_max: int = 1024
    write_rate: float = 5_000.0
    write_burst: float = 0.0
    bulk_rate: float = 33_554_432.0
    get_compat: bool = False
    audit_bytes_max: int = 67_108_864
    audit_files_max: int = 16

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            if not (value > 0 or (field.name in _MAY_BE_NONE and value == 0)):
                raise InvalidSettings(f"{field.name} is {value}: it must be positive")
        if 0 < self.write_burst < 1:
            raise InvalidSettings(f"write_burst is {self.write_burst}: no write could ever be made")
        Proxies(self.proxies)
        try:
            Hosts(self.allow_hosts)
        except ValueError as error:
            raise InvalidSettings(f"allow_hosts: {error}", hint="give NAME or NAME:PORT") from None

    @property
    def burst(self) -> float:
        """Writes that may come at once."""
        return self.write_burst or max(1.0, BURST_SECONDS * self.write_rate)

    @property
    def incoming_bytes_max(self) -> int:
        """What of one credential may be under way to the node."""
        return max(1, min(self.credential_bytes_max, self.bodies_bytes_max // 4))

    def connections_allowed(self) -> int:
        """What is open at most: the setting, or what the process may open less what is reserved."""
        return max(1, min(self.connections_max, _descriptors_max() - DESCRIPTORS_RESERVED))


def _descriptors_max() -> int:
    if sys.platform == "win32":
        return sys.maxsize
    import resource  # noqa: PLC0415  not there on Windows

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
