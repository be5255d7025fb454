"""The process that `test_injected.py` disturbs: it says each promise as soon as it was made to it."""

from __future__ import annotations

import sys

from relaymesh import Mesh, MeshSettings
from relaymesh.errors import MeshError, Refused
from relaymesh.journal import JournalSettings

SENDS = 8
SMALL = MeshSettings(
    journal=JournalSettings(segment_bytes_max=1_500, allocate_bytes=700, checkpoint_reserve_bytes=1_000)
)


def say(*words: str) -> None:
    print(*words, flush=True)


def work(mesh: Mesh, tag: str) -> None:
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    for n in range(SENDS):
        try:
            say("receipt", planner.send("coder", "x" * 100, id=f"{tag}{n}").id)
        except Refused as error:
            say("refused", error.code)
    for delivery in coder.receive_many(2):
        say("acking", delivery.id)
        delivery.ack(durable=True)
        say("acked", delivery.id)
    try:
        mesh.checkpoint()
    except Refused as error:
        say("refused", error.code)


def main(place: str, tag: str) -> int:
    try:
        mesh = Mesh(place, settings=SMALL)
        try:
            work(mesh, tag)
        finally:
            mesh.close()
    except MeshError as error:
        say("failed", error.code)
        return 3
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
