"""kill -9 at any moment: files and mesh are held against ledgers that are kept outside of both."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from relaymesh import Mesh
from tests.cli.running import environment

SENDS = 120
KILLS = 6
PATIENCE_S = 150


class Gateway:
    """`relaymesh bus run` in a process of its own."""

    def __init__(self, bus: Path, data: Path) -> None:
        self._words = [sys.executable, "-c", "from relaymesh.cli.bus import app; app()", "run", str(bus)]
        self._words += ["--agent", "coder", "--dir", str(data), "--poll", "0.05", "--silent", "5"]
        self._said = bus.with_suffix(".said")
        self.start()

    def start(self) -> None:
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                self._words, env=environment(), stdout=subprocess.DEVNULL, stderr=said
            )
        while "serving" not in self._said.read_text():
            assert self.process.poll() is None, self._said.read_text()
            time.sleep(0.01)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(timeout=60)


class Sender(threading.Thread):
    """Writes sends as a script would, and keeps a ledger of what it wrote."""

    def __init__(self, bus: Path, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.bus = bus
        self.rng = rng
        self.sent: list[str] = []

    def run(self) -> None:
        for number in range(SENDS):
            stem = f"s-{number:04}"
            self.sent.append(stem)
            self.put(f"payload/{stem}.payload.json", json.dumps({"n": number}))
            self.put(f"meta/{stem}.meta.json", '{"to": "coder"}')
            time.sleep(self.rng.random() * 0.05)

    def put(self, place: str, text: str) -> None:
        new = self.bus / Path(place).parent / f".{Path(place).name}.new"
        new.write_text(text)
        new.chmod(0o600)
        new.rename(self.bus / place)


class Worker(threading.Thread):
    """Claims, notes what it claimed and whether its verdict could be filed, and goes on."""

    def __init__(self, bus: Path, me: str, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.bus = bus
        self.mine = bus / "processing" / me
        self.mine.mkdir(parents=True)
        self.rng = rng
        self.claimed: list[dict[str, Any]] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.is_set():
            for file in sorted(self.bus.glob("inbox/*/[!.]*.meta.json")):
                try:
                    mine = file.rename(self.mine / file.name)
                except FileNotFoundError:
                    continue
                self.work(mine)
            time.sleep(0.01)

    def work(self, file: Path) -> None:
        meta = json.loads(file.read_bytes())
        content = json.loads((self.bus / meta["payload"]).read_bytes())
        note = {"id": meta["id"], "attempt": meta["delivery"]["attempt"], "stem": file.name, "done": False}
        assert content == {"n": int(meta["id"][2:])}
        self.claimed.append(note)
        refuse = self.rng.random() < 0.1 and note["attempt"] == 1
        try:
            if refuse:
                stem = file.name.removesuffix(".meta.json")
                verdict = self.bus / f"dead/{stem}.verdict.json"
                verdict.write_text('{"retryable": true, "delayMs": 0}')
                verdict.chmod(0o600)
                file.rename(self.bus / "dead" / file.name)
            else:
                file.rename(self.bus / "done" / file.name)
                note["done"] = True
        except FileNotFoundError:
            return  # the lease was lost meanwhile


def check(sent: list[str], claimed: list[dict[str, Any]]) -> None:
    """Nothing lost, nothing phantom, and a second time only as a redelivery."""
    done = {note["id"] for note in claimed if note["done"]}
    assert set(sent) - done == set(), "lost"
    assert done - set(sent) == set(), "phantom"
    stems = [note["stem"] for note in claimed]
    assert len(stems) == len(set(stems)), "one delivery was claimed twice"
    for id in sent:
        attempts = [note["attempt"] for note in claimed if note["id"] == id]
        assert sorted(set(attempts)) == sorted(attempts), f"{id} came twice with the same attempt: {attempts}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_a_gateway_killed_at_random_loses_nothing_and_invents_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    bus, data = tmp_path / "bus", tmp_path / "mesh"
    with Mesh(data) as mesh:
        mesh.agent("coder", lease_ms=2000, max_retries=50, backoff_ms_base=10, breaker=False)
    gateway = Gateway(bus, data)
    sender, workers = Sender(bus, rng), [Worker(bus, me, rng) for me in ("w1", "w2")]
    for thread in (sender, *workers):
        thread.start()
    for _ in range(KILLS):
        time.sleep(rng.random() * 0.8)
        gateway.kill()
        gateway.start()
    sender.join()
    deadline = time.monotonic() + PATIENCE_S
    while not {note["id"] for worker in workers for note in worker.claimed if note["done"]} >= set(
        sender.sent
    ):
        assert time.monotonic() < deadline, "it did not come to an end"
        time.sleep(0.05)
    while list(bus.glob("done/*.meta.json")) or list(bus.glob("meta/*")):
        assert time.monotonic() < deadline, "it did not come to an end"
        time.sleep(0.05)
    for worker in workers:
        worker.stopping.set()
        worker.join()
    assert gateway.stop() == 0
    check(sender.sent, [note for worker in workers for note in worker.claimed])
    assert {path.name[:6] for path in bus.glob("receipt/*")} == set(sender.sent)
    assert [path.name for path in (bus / ".gateway").iterdir()] == ["lock"]
    with Mesh(data) as mesh:
        stats = mesh.stats().mailboxes["default/coder"]
        assert stats.accepted == SENDS, "a send was accepted twice"
        assert stats.acked + stats.pending == SENDS
        assert mesh.dead_letters() == []


def test_the_check_finds_what_it_is_for() -> None:
    fine = {"id": "a", "attempt": 1, "stem": "a~1", "done": True}
    check(["a"], [fine])
    check(["a"], [{**fine, "done": False}, {**fine, "stem": "a~2", "attempt": 2}])
    for sent, claimed, word in (
        (["a", "b"], [fine], "lost"),
        ([], [fine], "phantom"),
        (["a"], [fine, fine], "claimed twice"),
        (["a"], [fine, {**fine, "stem": "a~2"}], "same attempt"),
    ):
        with pytest.raises(AssertionError, match=word):
            check(sent, claimed)
