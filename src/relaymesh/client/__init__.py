"""Remote sessions: the calls of `relaymesh.sdk.session`, answered by a node over the network.

`connecting.connect` gives the awaited kind, `connect_threaded` the plain one. Both send again what was not
answered when a connection is lost, under the same ids, and keep their leases over a restart of the node;
when it stays away they raise `Unreachable`, which leaves open whether a send was accepted.
"""

from relaymesh.client.settings import RemoteSettings, Transport

__all__ = ["RemoteSettings", "Transport"]
