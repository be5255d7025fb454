"""`relaymesh serve` in a process of its own, with a disk that fails when it is told to.

A file called `fail` in the data directory makes every later sync of the journal an I/O error.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

from relaymesh.cli import main, serve
from relaymesh.node.disk import RealFile

plain_sync = RealFile.sync


def sync_or_fail(file: RealFile) -> None:
    if Path(os.environ["FAIL_FILE"]).exists():
        raise OSError(errno.EIO, "the disk is gone")
    plain_sync(file)


if __name__ == "__main__":
    RealFile.sync = sync_or_fail  # type: ignore[method-assign, assignment]
    registered = {command.name for command in main.app.registered_commands}
    for name, command in (("serve", serve.serve), ("dev", serve.dev)):
        if name not in registered:
            main.app.command(name)(command)
    sys.exit(main.main())
