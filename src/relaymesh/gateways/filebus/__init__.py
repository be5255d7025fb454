"""The file bus: any program that can write and rename a file can send and receive.

A bus is a directory (docs/formats/file-bus.md). What scripts put into `meta/` and `payload/` is sent;
what the mesh has for the agents of the bus lies in `inbox/high`, `inbox/normal` and `inbox/low`, each
delivery under a lease that is named in its file name. Renaming a file is the whole protocol: into
`processing/<worker_id>/` claims it, into `done/` acks it, into `dead/` refuses it.

Promised: what got a receipt file is in the mesh, once, whatever happens to the gateway; a delivery is
claimed by one worker at a time; nothing outside the directory is read or written, whatever is put into it.
The caller owns the session, opens and closes it, and calls `FileBus.turn` (or `FileBus.run`) from one thread.
"""

from relaymesh.gateways.filebus.bus import FileBus
from relaymesh.gateways.filebus.settings import BusSettings

__all__ = ["BusSettings", "FileBus"]
