"""The pipeline: journal to bronze, in events per second and core.

`python -m bench.pipeline [--events N] [--cores N]` prints one JSON object. Time is CPU time (of Python and
Java together) unless it says otherwise, so that a busy machine gives the same figure.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.journals import write_journal

TARGET = 50_000
"""Events per second and core: 3,000,000 a minute."""


def measure(place: Path, *, events: int = 2_000_000, cores: int = 2) -> dict[str, Any]:
    """Planning, decoding alone, and the whole way into Parquet."""
    journal = place / "journal"
    written, generating = _timed(lambda: write_journal(journal, events))
    found: dict[str, Any] = {
        "events": written,
        "journal_bytes": sum(file.stat().st_size for file in journal.glob("*/*.rmj")),
        "generated_in_s": round(generating["wall_s"], 2),
        "decode": _decode(journal, written),
        "bronze": _bronze(journal, place / "bronze", written, cores),
    }
    found["target"] = TARGET
    return found


def _decode(journal: Path, events: int) -> dict[str, Any]:
    """One core, no Spark: what reading, checking and decoding cost by themselves."""
    from relaymesh.pipeline.source.batch import BatchReader
    from relaymesh.pipeline.source.options import SourceOptions

    reader = BatchReader(SourceOptions.parse({"path": str(journal)}))
    pieces, planning = _timed(reader.partitions)
    rows, decoding = _timed(lambda: sum(batch.num_rows for piece in pieces for batch in reader.read(piece)))
    assert rows == events, f"{rows} rows of {events} events"
    return {
        "pieces": len(pieces),
        "planning_s": round(planning["cpu_s"], 3),
        "cpu_s": round(decoding["cpu_s"], 2),
        "events_per_cpu_s": round(events / decoding["cpu_s"]),
    }


def _bronze(journal: Path, out: Path, events: int, cores: int) -> dict[str, Any]:
    """The source through Spark into Parquet by day, twice: `cold`, with a Java just started, and `warm`."""
    from relaymesh.pipeline.spark import spark_session

    session, starting = _timed(lambda: spark_session(master=f"local[{cores}]", app="bench"))
    try:
        frame = session.read.format("relaymesh").load(str(journal))

        def write() -> None:
            frame.write.mode("overwrite").partitionBy("event_date").parquet(str(out))

        runs = {name: _timed(write)[1] for name in ("cold", "warm")}
        rows = session.read.parquet(str(out)).count()
        assert rows == events, f"{rows} rows of {events} events"
    finally:
        session.stop()
    return {
        "cores": cores,
        "starting_s": round(starting["wall_s"], 1),
        "parquet_bytes": sum(file.stat().st_size for file in out.rglob("*.parquet")),
        **{
            name: {
                "wall_s": round(spent["wall_s"], 2),
                "cpu_s": round(spent["cpu_s"], 2),
                "events_per_s": round(events / spent["wall_s"]),
                "events_per_s_and_core": round(events / spent["cpu_s"]),
            }
            for name, spent in runs.items()
        },
    }


def _timed(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    cpu, wall = _cpu_s(), time.perf_counter()
    answer = work()
    return answer, {"cpu_s": _cpu_s() - cpu, "wall_s": time.perf_counter() - wall}


def _cpu_s() -> float:
    """CPU seconds of this process and everything under it, also of what has ended there."""
    ticks = os.sysconf("SC_CLK_TCK")
    pids = [each.name for each in Path("/proc").iterdir() if each.name.isdigit()]
    stats = {pid: fields for pid in pids if (fields := _stat(pid))}
    mine, found = {str(os.getpid())}, 0
    while len(mine) > found:
        found = len(mine)
        mine |= {pid for pid, fields in stats.items() if fields[1] in mine}
    return sum(sum(map(int, stats[pid][11:15])) for pid in mine if pid in stats) / ticks


def _stat(pid: str) -> list[str]:
    """The fields of /proc/<pid>/stat behind the name: state, parent, …, user, system, children's two."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description="Measure the pipeline.")
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="relaymesh-bench-"))
    try:
        print(json.dumps(measure(place, events=given.events, cores=given.cores), indent=1))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
