"""Two workers, one inbox: every delivery is claimed by exactly one of them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from relaymesh import Mesh
from relaymesh.gateways.filebus import BusSettings, FileBus
from tests.gateways.filebus import racer

MESSAGES = 500


def test_two_workers_race_for_500_files_and_each_is_processed_once(tmp_path: Path) -> None:
    with Mesh(durability="memory") as mesh:
        bus = FileBus(mesh._session, tmp_path / "bus", ["coder"], BusSettings(window=64, poll_s_min=0.005))
        planner = mesh.agent("planner")
        planner.send_many([{"to": "coder", "content": n, "id": f"m-{n}"} for n in range(MESSAGES)])
        stop, running = threading.Event(), threading.Thread(target=lambda: bus.run(stop))
        stop_file = tmp_path / "stop"
        workers = [
            subprocess.Popen(
                [sys.executable, racer.__file__, *map(str, (tmp_path / "bus", me, tmp_path / me, stop_file))]
            )
            for me in ("w1", "w2")
        ]
        running.start()
        try:
            deadline = time.monotonic() + 100
            while mesh.stats().mailboxes["default/coder"].acked < MESSAGES:
                assert time.monotonic() < deadline, mesh.stats().mailboxes["default/coder"]
                time.sleep(0.01)
        finally:
            stop_file.touch()
            for worker in workers:
                worker.wait(timeout=30)
            stop.set()
            running.join()
            bus.close()
        logs = [(tmp_path / me).read_text().split() for me in ("w1", "w2")]
        claimed = [name for log in logs for name in log]
        assert len(claimed) == len(set(claimed)) == MESSAGES
        assert {name.partition("~")[0] for name in claimed} == {f"m-{n}" for n in range(MESSAGES)}
        assert all(logs), "one of the two never won: that was no race"
        stats = mesh.stats().mailboxes["default/coder"]
        assert (stats.delivered, stats.acked, stats.retried) == (MESSAGES, MESSAGES, 0)
