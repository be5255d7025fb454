"""Remote sessions: the calls of `relaymesh.sdk.session`, answered by a node over the network.

`connecting.connect` returns the async session, `connect_threaded` the sync one. When a connection is lost,
both repeat unanswered requests under the same ids, and keep their leases over a restart of the node. If the
node stays away they raise `Unreachable`: a send may or may not have been accepted.
"""

from relaymesh.client.settings import RemoteSettings, Transport

__all__ = ["RemoteSettings", "Transport"]
