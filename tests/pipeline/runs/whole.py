"""Is what is published whole? Looked at from outside, without Spark, again and again."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from relaymesh.journal import read_frames
from relaymesh.node.disk import RealDisk
from relaymesh.pipeline.tables.manifest import Manifest
from relaymesh.pipeline.tables.store import TableStore
from relaymesh.wire.records import decode_records


def check_whole(store: TableStore) -> Manifest | None:
    """Every file that the manifest names is there and holds the rows it says."""
    manifest = store.manifest()
    for table in manifest.tables.values() if manifest else ():
        for part in table.parts:
            for file in part.files:
                assert pq.read_metadata(store.root / file.path).num_rows == file.rows, file.path
        assert table.rows == sum(part.rows for part in table.parts), table.name
    return manifest


@contextmanager
def watching(store: TableStore) -> Iterator[list[str]]:
    """Look all the time; answers the runs that were seen, in order. Raises at the end what was wrong."""
    seen: list[str] = []
    wrong: list[BaseException] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.05):
            try:
                manifest = check_whole(store)
            except BaseException as error:
                wrong.append(error)
                return
            if manifest is not None and manifest.run_id not in seen[-1:]:
                seen.append(manifest.run_id)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()
    assert not wrong, wrong


def journal_sequences(data: Path) -> list[int]:
    """Every event of the journal, by its sequence."""
    return [
        frame.first_sequence + i
        for frame in read_frames(RealDisk(data))
        for i in range(sum(record.count for record in decode_records(frame.payload)))
    ]


def bronze_sequences(store: TableStore) -> list[tuple[int, int]]:
    """(partition, sequence) of every row of published bronze, read without Spark."""
    manifest = store.manifest()
    assert manifest is not None
    found: list[tuple[int, int]] = []
    for piece in manifest.bronze:
        for path in (store.root / piece.folder / f"event_date={piece.day}").glob("*.parquet"):
            table = pq.ParquetFile(path).read(["partition", "sequence"])
            found += zip(table["partition"].to_pylist(), table["sequence"].to_pylist(), strict=True)
    return sorted(found)


def assert_bronze_is_the_journal(store: TableStore, data: Path) -> None:
    found = bronze_sequences(store)
    assert [key for key, times in Counter(found).items() if times > 1] == []
    assert [sequence for _, sequence in found] == journal_sequences(data)
