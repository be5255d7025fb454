"""A program: a node server whose limits are given as JSON, so that a test need not wait for the real ones."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from relaymesh.node.settings import MeshSettings
from relaymesh.server.run import NodeServer, event_loop
from relaymesh.server.security.limits import SecuritySettings
from relaymesh.server.settings import ServerSettings


async def main(directory: Path, limits: dict[str, object]) -> None:
    own = {name: limits.pop(name) for name in ("body_bytes_max",) if name in limits}
    security = SecuritySettings(**limits)  # type: ignore[arg-type]
    settings = ServerSettings(port=0, security=security, **own)  # type: ignore[arg-type]
    await NodeServer(directory, MeshSettings(), settings, announce=lambda _: None).run()


def leave_descriptors(count: int | None) -> None:
    if count is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    leave_descriptors(given.pop("descriptors", None))
    with asyncio.Runner(loop_factory=event_loop()) as runner:
        runner.run(main(Path(sys.argv[1]), given))
