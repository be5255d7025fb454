"""Settings of the server. Parsed once, at the edge; each with its default and what raising it costs."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaymesh.errors import InvalidSettings
from relaymesh.server.reliability import ReliabilityConfig
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.wire.parameters import DEFAULTS, ROWS, Value, graceful_timeout_default

PORT_DEFAULT = 7717


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSettings:
    """Frozen and checked on construction.

    host: the address to listen on. Anything but loopback needs TLS and tokens.
    port: 0 takes any free one; the address file says which.
    graceful_timeout: seconds a stop may take before what still runs is cut off (15; 5 on Windows).
    body_bytes_max: the largest request body. Raising it costs that much memory for every request at once.
    receive_waits_max: long polls that may wait at once. Each costs about 20 kB, its connection included.
    tls_cert, tls_key: PEM files; both or neither.
    tls_client_ca: a PEM file; clients must then show a certificate that it signed.
    security: settings of the guard.
    reliability: the six reliability settings of the Mailbox protocol, for mailboxes that choose no others.
    """

    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    graceful_timeout: float = graceful_timeout_default()
    body_bytes_max: int = 16_777_216
    receive_waits_max: int = 10_000
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    security: SecuritySettings = field(default_factory=SecuritySettings)
    reliability: ReliabilityConfig = field(default_factory=ReliabilityConfig)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise InvalidSettings(f"port is {self.port}: it must lie between 0 (any) and 65535")
        if not 0 <= self.graceful_timeout <= 3_600:
            raise InvalidSettings(
                f"graceful_timeout is {self.graceful_timeout}: it must be 0 to 3600 seconds"
            )
        for name in ("body_bytes_max", "receive_waits_max"):
            if getattr(self, name) < 1:
                raise InvalidSettings(f"{name} is {getattr(self, name)}: it must be positive")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidSettings("tls_cert and tls_key go together", hint="give both, or neither")

    @property
    def flags(self) -> dict[str, Value]:
        """What a program set here of the settings that a file may hold too; a default is not set."""
        found: dict[str, Value] = {}
        for name, row in ROWS.items():
            holder = self.reliability if hasattr(self.reliability, row.field) else self
            value = getattr(holder, row.field, row.default)
            if value != getattr(DEFAULTS, row.field):
                found[name] = value
        return found

    @property
    def scheme(self) -> str:
        return "https" if self.tls_cert else "http"
