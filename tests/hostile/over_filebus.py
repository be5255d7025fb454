"""Hostile files: metas, payloads, verdicts and edited deliveries, drawn from the types of the file bus."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import inspect as types

from relaymesh.errors import MeshError
from relaymesh.gateways.filebus import BusSettings
from relaymesh.gateways.filebus.claim import DeliveryWords, MetaWords
from relaymesh.gateways.filebus.verdict import Verdict
from relaymesh.wire.message import Message, Metadata
from tests.gateways.filebus.station import Claim, Station
from tests.hostile.houses import ManualHouse
from tests.hostile.judge import complaint, where
from tests.hostile.picture import differences, picture_of
from tests.hostile.report import Report
from tests.hostile.tree import JSON_VALUES, Grow, as_json, spoil
from tests.hostile.values import HOSTILE, value_of

EVERY = 200
LIVES_A_DIRECTORY = 8
NAMES = (
    "\x1b[31m",
    "..",
    "a b",
    "x" * 200,
    "é",
    "-rf",
    "~",
    "a~0.1.1",
    "%2e%2e",
    "m\n",
    "\udcff",
    "*",
    "m-1",
    "bus",
)
"""Stems that a hostile script may give its files."""


def _fields(kind: type, prefix: str) -> list[str]:
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    return [f"{prefix}.{each.encode_name}" for each in info.fields if each.encode_name != "content"]


def names() -> list[str]:
    """Every part of every file that a script writes, and every setting."""
    return [
        *_fields(Message, "meta"),
        "meta.topic",
        *_fields(Metadata, "metadata"),
        "payload.json",
        "payload.bin",
        "name",
        *_fields(Verdict, "verdict"),
        *_fields(MetaWords, "delivery"),
        *_fields(DeliveryWords, "delivery words"),
        *[f"settings.{each.name}" for each in dataclasses.fields(BusSettings)],
    ]


class Bus:
    """One bus after the other, on a mesh that is opened again and again."""

    def __init__(self, folder: Path, report: Report, rng: random.Random) -> None:
        self._folder = folder
        self._report = report
        self._rng = rng
        self._grow = Grow(rng, lambda _: None)
        self._message = types.type_info(Message)
        self._made = 0
        self._lives = 0
        self._line = ""
        self._start()

    def _start(self) -> None:
        self._house = ManualHouse(self._folder)
        self._house.open()
        self._furnish()

    def _furnish(self) -> None:
        self._made += 1
        self._house.furnish()
        self._station = Station(self._folder / f"bus-{self._made}", self._house.mesh, "a1", "a2")

    # -- one file

    def one(self, name: str) -> None:
        kind, _, part = name.partition(".")
        does: dict[str, Callable[[str], bool]] = {
            "settings": self._settings,
            "verdict": self._verdict,
            "delivery": self._delivery,
            "delivery words": self._delivery,
        }
        refused = does[kind](part) if kind in does else self._send(kind, part)
        self._report.called(name, refused=refused, hostile=1)

    def _settings(self, part: str) -> bool:
        source = self._rng.choice(HOSTILE)
        self._line = f"BusSettings({part}={source})"
        try:
            BusSettings(**{part: value_of(source)})
        except Exception as error:
            self._complain(f"settings.{part}", error)
            return True
        return False

    def _send(self, kind: str, part: str) -> bool:
        """A meta file and its payload, one part of them hostile."""
        rng = self._rng
        self._made += 1
        stem = f"send-{self._made}"
        meta = {"to": "a1", **({"metadata": self._metadata()} if rng.random() < 0.5 else {})}
        payload, ending = as_json(self._grow.typed(types.type_info(dict), "content")), ".payload.json"
        if kind == "meta":
            meta[part] = rng.choice(JSON_VALUES)
            if part == "topic" and rng.random() < 0.7:
                del meta["to"]
        elif kind == "metadata":
            meta["metadata"] = {part: rng.choice(JSON_VALUES)}
        elif kind == "payload":
            payload = as_json(rng.choice(JSON_VALUES))
            ending = f".payload.{part}"
        else:
            stem = rng.choice(NAMES)
        data = as_json(meta)
        self._line = f"payload/{stem!r}{ending}: {payload[:300]!r}; meta: {data[:700]!r}"
        try:
            self._station.write(f"payload/{stem}{ending}", payload)
            self._station.write(f"meta/{stem}.meta.json", data)
        except (OSError, ValueError):
            return True  # no file can have that name
        return self._answered(kind, stem)

    def _metadata(self) -> dict[str, Any]:
        found: dict[str, Any] = self._grow.typed(types.type_info(Metadata))
        return found

    def _answered(self, kind: str, stem: str) -> bool:
        """Whether it was refused. What is neither sent nor refused was forgotten."""
        station = self._station
        for seconds in (3, 120):
            station.later += seconds
            self._turn(kind)
            if kind == "name":
                return not (station.path / f"receipt/{stem}.receipt.json").exists()
            if station.receipt(stem) is not None:
                return False
            reason = station.reason(stem)
            if reason is not None:
                if not reason.get("hint") or not reason.get("code"):
                    self._surprise(kind, "a reason without a hint", str(reason)[:300])
                return True
        waits = (station.path / ".gateway" / f"{stem}.meta.json").exists()
        if not waits:
            self._surprise(kind, "neither sent nor refused")
        return True

    def _claim(self) -> Claim | None:
        claim = self._station.claim()
        if claim is None:
            with contextlib.suppress(MeshError):
                self._house.mesh.agent("a2").send("a1", {"n": 1})
            self._turn("claim")
            claim = self._station.claim()
        return claim

    def _verdict(self, part: str) -> bool:
        claim = self._claim()
        if claim is None:
            return False
        verdict: dict[str, Any] = self._grow.typed(types.type_info(Verdict))
        verdict[part] = self._rng.choice(JSON_VALUES)
        data = as_json(verdict)
        self._line = f"dead/{claim.stem}.verdict.json: {data[:700]!r}"
        self._station.write(f"dead/{claim.stem}.verdict.json", data)
        claim.path.rename(self._station.path / "dead" / claim.path.name)
        self._turn("verdict")
        said = self._station.reason(claim.stem) or {}
        return "cannot be read" in str(said.get("message"))

    def _delivery(self, part: str) -> bool:
        """A worker edits the delivery that it claimed, and says that it is done."""
        claim = self._claim()
        if claim is None:
            return False
        meta = spoil(claim.meta, self._rng, JSON_VALUES)
        if part in claim.meta.get("delivery", {}):
            meta = {**claim.meta, "delivery": {**claim.meta["delivery"], part: self._rng.choice(JSON_VALUES)}}
        data = as_json(meta)
        self._line = f"processing/w1/{claim.path.name}: {data[:900]!r}; then done/"
        claim.path.write_bytes(data)
        if self._rng.random() < 0.5:
            self._gateway_again()
        claim.path.rename(self._station.path / "done" / claim.path.name)
        self._turn("delivery")
        return (self._station.path / "done" / claim.path.name).exists()

    # -- looking after it

    def _gateway_again(self) -> None:
        try:
            self._station.die()
            self._station.open()
        except Exception as error:
            self._complain("gateway", error)
            self.reopened(kill=True)

    def _turn(self, name: str) -> None:
        try:
            self._station.turn()
        except Exception as error:
            self._complain(name, error)

    def _complain(self, name: str, error: Exception) -> None:
        why = complaint(error)
        if why is not None:
            self._report.surprise(
                name, why, where(error), self._line, f"{type(error).__name__}: {error}"[:400]
            )

    def _surprise(self, name: str, what: str, detail: str = "") -> None:
        self._report.surprise(name, what, "the gateway", self._line, detail)

    def bystander(self) -> bool:
        try:
            self._house.bystander()
            self._station.turn()
        except Exception as error:
            self._surprise("a bystander", "others cannot go on", f"{type(error).__name__}: {error}")
            return False
        self._report.bystander += 1
        return True

    def reopened(self, *, kill: bool) -> None:
        """End the gateway and the mesh, open them again, and compare."""
        with contextlib.suppress(Exception):
            if kill:
                self._station.die()
            else:
                self._station.bus.close()
        shutil.rmtree(self._station.path, ignore_errors=True)
        node = self._house.node
        self._lives += 1
        try:
            self._house.end(kill=kill)
            before = picture_of(node)
            self._house.open()
        except Exception as error:
            self._surprise("open", "the directory cannot be opened again", f"{type(error).__name__}: {error}")
            self._start()
            return
        self._report.reopened += 1
        for each in differences(before, picture_of(self._house.node)):
            self._surprise("open", "a restart changed the state", each)
        if self._lives % LIVES_A_DIRECTORY == 0:
            self._house.end(kill=True)
            self._start()
        else:
            self._furnish()

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self._station.bus.close()
        self._house.end(kill=True)


def run(calls: int, seed: int) -> Report:
    """A run in a folder of its own."""
    logging.getLogger("relaymesh").setLevel(logging.CRITICAL)
    rng = random.Random(seed)
    every = names()
    weights = [0.2 if name.startswith("settings.") else 1 for name in every]
    report = Report("filebus", seed, every)
    before = os.umask(0o077)
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder:
        bus = Bus(Path(folder), report, rng)
        try:
            for i in range(calls):
                surprised = report.surprised
                bus.one(every[i % len(every)] if i < len(every) else rng.choices(every, weights)[0])
                again = report.surprised > surprised
                if (again or i % 10 == 0) and not bus.bystander():
                    again = True
                if again or i % EVERY == EVERY - 1:
                    bus.reopened(kill=rng.random() < 0.5)
        finally:
            bus.stop()
            os.umask(before)
    return report
