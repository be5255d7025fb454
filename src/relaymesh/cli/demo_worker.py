"""The worker of the demo that is killed: takes a message, says so, and never finishes.

Run as `python -m relaymesh.cli.demo_worker DIRECTORY AGENT`, by the demo.
"""

from __future__ import annotations

import sys
import time

from relaymesh.cli.output import json_text
from relaymesh.sdk.mesh import Mesh

WORKING_S = 60.0


def work(directory: str, agent: str) -> None:
    mesh = Mesh(directory)
    delivery = mesh.agent(agent).receive(timeout=10)
    print(json_text({"id": delivery.id, "attempt": delivery.attempt, "token": delivery.token}), flush=True)
    time.sleep(WORKING_S)


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2])
