"""The origin of a request: X-Forwarded-* is used only if it comes from a configured proxy."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from relaymesh.errors import InvalidSettings

_Network = IPv4Network | IPv6Network


class Proxies:
    """Addresses or networks (`10.0.0.0/8`) of proxies."""

    def __init__(self, trusted: Iterable[str] = ()) -> None:
        self._networks: list[_Network] = []
        for text in trusted:
            try:
                self._networks.append(ip_network(text, strict=False))
            except ValueError:
                raise InvalidSettings(
                    f"{text!r} is no address or network of a proxy", hint="such as 10.0.0.7 or 10.0.0.0/8"
                ) from None

    def trusts(self, address: str | None) -> bool:
        if not self._networks:
            return False
        parsed = _parsed(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def remote_address(self, peer: str | None, forwarded_for: str | None) -> str | None:
        """Where a request came from: the peer, or the last hop before the trusted proxies that passed it on.

        Read from the right: the client may have written anything left of the first untrusted address.
        """
        if forwarded_for is None or not self.trusts(peer):
            return peer
        last = peer
        for hop in reversed([part.strip() for part in forwarded_for.split(",")]):
            if _parsed(hop) is None:
                return last
            last = hop
            if not self.trusts(hop):
                return hop
        return last

    def scheme(self, peer: str | None, own: str, forwarded_proto: str | None) -> str:
        """`http` or `https`, as the client saw it."""
        if forwarded_proto in ("http", "https") and self.trusts(peer):
            return forwarded_proto
        return own


def _parsed(address: str | None) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(address) if address else None
    except ValueError:
        return None
