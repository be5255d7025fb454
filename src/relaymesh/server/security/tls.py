"""TLS, and the rule that the server speaks to other machines only with it."""

from __future__ import annotations

import ssl

from relaymesh.errors import InvalidSettings
from relaymesh.server.security.hosts import is_loopback
from relaymesh.server.settings import ServerSettings


def check_exposure(settings: ServerSettings) -> None:
    """Refuse to listen where other machines can reach it without TLS. Credentials are always asked for."""
    if is_loopback(settings.host) or settings.tls_cert is not None:
        return
    raise InvalidSettings(
        f"{settings.host} can be reached by other machines, and there is no TLS",
        hint="give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy that has TLS",
    )


def tls_context(settings: ServerSettings) -> ssl.SSLContext | None:
    """The server's side of TLS; None without a certificate. Raises for files that do not fit."""
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
        if settings.tls_client_ca is not None:
            context.load_verify_locations(settings.tls_client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(
            f"the TLS files cannot be used: {error}", hint="give PEM files: a certificate and its key"
        ) from None
    return context
