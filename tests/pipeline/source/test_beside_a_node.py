"""A stream beside a node at work: segments are sealed, archived and checkpointed under its feet."""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from relaymesh import Mesh, MeshSettings
from relaymesh.journal import JournalSettings
from relaymesh.pipeline.source.offsets import Offset
from relaymesh.pipeline.source.options import SourceOptions
from relaymesh.pipeline.source.stream import StreamReader

MESSAGES = 1_500
SETTINGS = MeshSettings(
    durability="batched",
    checkpoint_bytes=20_000,
    journal=JournalSettings(segment_bytes_max=8_000, allocate_bytes=8_192),
)


def work(mesh: Mesh) -> None:
    """Send, receive, ack; checkpoints come in between, and archive what lies behind them."""
    planner, coder = mesh.agent("planner"), mesh.agent("coder")
    for number in range(0, MESSAGES, 10):
        planner.send_many([{"to": "coder", "content": number + i} for i in range(10)])
        mesh.ack_many(coder.receive_many(10, timeout=30))
        if number % 300 == 290:
            mesh.checkpoint()


def take(reader: StreamReader, start: Offset, end: Offset) -> list[int]:
    batches = [batch for piece in reader.partitions(start, end) for batch in reader.read(piece)]
    return [sequence for batch in batches for sequence in batch.column("sequence").to_pylist()]


def test_each_event_is_read_once_while_the_node_works_and_archives(tmp_path: Path) -> None:
    with Mesh(tmp_path, settings=SETTINGS) as mesh:
        reader = StreamReader(SourceOptions.parse({"path": str(tmp_path)}))
        offset = reader.initialOffset()
        worker = threading.Thread(target=work, args=(mesh,))
        worker.start()
        read: list[int] = []
        while worker.is_alive():
            end = reader.latestOffset(offset, ReadMaxRows(97))
            read += take(reader, offset, end)
            offset = end
        worker.join()
    end = reader.latestOffset(offset, ReadAllAvailable())
    read += take(reader, offset, end)
    assert read == list(range(1, len(read) + 1))
    assert len(read) >= 3 * MESSAGES
    assert list(tmp_path.glob("archive/*.rmj")), "nothing was archived meanwhile: the test shows nothing"
