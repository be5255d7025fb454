"""`python -m bench.peers.relaymesh_node DIRECTORY PORT`: a node as `relaymesh serve` runs it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from relaymesh import MeshSettings
from relaymesh.server.run import NodeServer, event_loop
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings


def main() -> None:
    directory, port = Path(sys.argv[1]), int(sys.argv[2])
    settings = ServerSettings(port=port, security=SecuritySettings(write_rate=0))
    with asyncio.Runner(loop_factory=event_loop()) as runner:
        runner.run(_serve(directory, settings))


async def _serve(directory: Path, settings: ServerSettings) -> bool:
    server = NodeServer(directory, MeshSettings(), settings, announce=lambda running: print(running.url))
    return await server.run()


if __name__ == "__main__":
    main()
