"""Rows as messages: each once, whatever is tried twice; what a job that failed has sent, it says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import StructType

from relaymesh import Mesh
from relaymesh.errors import Conflict, InvalidEnvelope, InvalidSettings, MailboxFull, UnknownRecipient
from relaymesh.pipeline.source.writer import BatchWriter, Staged, StreamWriter, WriterOptions
from tests.pipeline.source.journals import read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = StructType().add("to", "string").add("content", "string")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A mesh with two mailboxes and a subscription, closed again."""
    with Mesh(tmp_path / "data") as mesh:
        mesh.agent("coder")
        mesh.agent("reviewer")
        mesh.subscribe("news", "coder")
    return tmp_path / "data"


def options(data: Path, schema: StructType = SCHEMA, **given: str) -> WriterOptions:
    return WriterOptions.parse({"path": str(data), **given}, schema, overwrite=False)


def messages(count: int, to: str = "coder") -> list[Row]:
    return [Row(to=to, content=f"hello {i}") for i in range(count)]


def accepted(data: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(data) if row["operation"] in ("APPEND", "PUBLISH")]


def staged(writer: BatchWriter | StreamWriter, rows: list[Row], partition: int = 0) -> Staged:
    part = writer.write(iter(rows))
    return Staged(partition, part.run, part.rows, part.file)


class TestBatch:
    def test_rows_are_sent_in_order_when_all_tasks_are_done(self, data: Path) -> None:
        writer = BatchWriter(options(data, idPrefix="job"))
        parts = [staged(writer, messages(2), 1), staged(writer, messages(1), 0)]
        assert accepted(data) == []
        writer.commit(parts)
        assert [row["message_id"] for row in accepted(data)] == ["job-0-0", "job-1-0", "job-1-1"]
        assert {row["sender"] for row in accepted(data)} == {"default/spark"}

    def test_more_than_one_batch_of_messages(self, data: Path) -> None:
        writer = BatchWriter(options(data))
        writer.commit([staged(writer, messages(1_234))])
        contents = [row["content"] for row in accepted(data)]
        assert contents == [b'"hello %d"' % i for i in range(1_234)]

    def test_a_task_that_ran_twice_counts_once(self, data: Path) -> None:
        writer = BatchWriter(options(data))
        staged(writer, messages(5))
        writer.commit([staged(writer, messages(5)), None])
        assert len(accepted(data)) == 5

    def test_a_commit_that_is_repeated_adds_nothing(self, data: Path) -> None:
        writer = BatchWriter(options(data))
        parts = [staged(writer, messages(700))]
        writer.commit(parts)
        writer.commit(parts)
        assert len(accepted(data)) == 700

    def test_a_job_run_again_under_its_prefix_adds_what_is_missing(self, data: Path) -> None:
        first = BatchWriter(options(data, idPrefix="job"))
        first.commit([staged(first, messages(3))])
        again = BatchWriter(options(data, idPrefix="job"))
        again.commit([staged(again, messages(5))])
        assert Counter(row["message_id"] for row in accepted(data)) == {f"job-0-{i}": 1 for i in range(5)}

    def test_other_rows_under_the_same_ids_are_a_conflict(self, data: Path) -> None:
        first = BatchWriter(options(data, idPrefix="job"))
        first.commit([staged(first, messages(3))])
        other = BatchWriter(options(data, idPrefix="job"))
        with pytest.raises(Conflict):
            other.commit([staged(other, [Row(to="coder", content="something else")])])

    def test_two_jobs_without_a_prefix_are_two_jobs(self, data: Path) -> None:
        for _ in range(2):
            writer = BatchWriter(options(data))
            writer.commit([staged(writer, messages(3))])
        assert len(accepted(data)) == 6

    def test_an_aborted_job_has_sent_nothing(self, data: Path, tmp_path: Path) -> None:
        staging = tmp_path / "staging"
        writer = BatchWriter(options(data, staging=str(staging)))
        parts = [staged(writer, messages(5)), None]
        assert len(list(staging.iterdir())) == 1
        writer.abort(parts)
        assert accepted(data) == []
        assert list(staging.iterdir()) == []

    def test_rows_can_pass_through_a_shared_directory(self, data: Path, tmp_path: Path) -> None:
        writer = BatchWriter(options(data, staging=str(tmp_path / "staging")))
        part = staged(writer, messages(5))
        assert part.rows == b""
        writer.commit([part])
        assert len(accepted(data)) == 5
        assert list((tmp_path / "staging").iterdir()) == []

    def test_an_unknown_recipient_stops_the_commit(self, data: Path) -> None:
        writer = BatchWriter(options(data))
        with pytest.raises(UnknownRecipient):
            writer.commit([staged(writer, messages(2, to="nobody"))])


class TestRefusedHalfway:
    """A job whose rows do not all fit."""

    @pytest.fixture
    def small(self, tmp_path: Path) -> Path:
        with Mesh(tmp_path / "small") as mesh:
            mesh.agent("coder", capacity=1_200)
            mesh.agent("reviewer", capacity_bytes=1_000)
        return tmp_path / "small"

    def test_room_is_checked_before_the_first_row_leaves(self, small: Path) -> None:
        writer = BatchWriter(options(small))
        with pytest.raises(MailboxFull, match=r"room for 1200 messages .* rows are 1500 .* none was sent"):
            writer.commit([staged(writer, messages(700), 0), staged(writer, messages(800), 1)])
        large = [Row(to="reviewer", content="x" * 600)] * 2
        with pytest.raises(MailboxFull, match=r"none was sent"):
            writer.commit([staged(writer, [*messages(600), *large])])
        assert accepted(small) == []

    def test_a_job_that_fits_exactly_is_sent(self, small: Path) -> None:
        writer = BatchWriter(options(small))
        writer.commit([staged(writer, messages(1_200))])
        assert len(accepted(small)) == 1_200

    def test_the_error_says_how_many_were_sent_and_how_to_send_the_rest(self, small: Path) -> None:
        rows = [*messages(700), *messages(1, to="nobody")]
        writer = BatchWriter(options(small))
        with pytest.raises(UnknownRecipient, match="500 of 701 rows were sent") as refused:
            writer.commit([staged(writer, rows)])
        assert len(accepted(small)) == 500
        told = re.search(r'\.option\("idPrefix", "(\w+)"\)', refused.value.hint)
        assert told is not None
        with Mesh(small) as mesh:
            mesh.agent("nobody")
        again = BatchWriter(options(small, idPrefix=told[1]))
        again.commit([staged(again, rows)])
        assert len(accepted(small)) == 701

    def test_a_retry_under_its_prefix_needs_room_for_the_rest_alone(self, small: Path) -> None:
        rows = messages(1_200)
        first = BatchWriter(options(small, idPrefix="job"))
        first.commit([staged(first, rows[:900])])
        again = BatchWriter(options(small, idPrefix="job"))
        again.commit([staged(again, rows)])
        assert len(accepted(small)) == 1_200

    def test_a_stream_says_it_too(self, small: Path) -> None:
        writer = StreamWriter(options(small, idPrefix="query"))
        with pytest.raises(MailboxFull, match="1000 of 1300 rows were sent"):
            writer.commit([staged(writer, messages(1_300))], 0)


class TestRows:
    def write(self, data: Path, *rows: Row) -> list[dict[str, Any]]:
        schema = StructType().add("content", "string")
        for name in rows[0].asDict():
            if name != "content":
                schema = schema.add(name, "string")
        writer = BatchWriter(options(data, schema))
        writer.commit([staged(writer, list(rows))])
        return accepted(data)

    def test_every_column_of_a_message(self, data: Path) -> None:
        (row,) = self.write(
            data,
            Row(
                to="coder",
                content=Row(do="bump", by=[1, 2]),
                id="mine",
                type="order",
                priority=2,
                key="k",
                task="t",
                delay_ms=50,
                ttl=9.5,
                tags=["a"],
                correlation_id="c",
                reply_to="reviewer",
                requires_ack=True,
                max_retries=1,
                trace="00-1",
                extra={"x": "y"},
            ),
        )
        assert row["message_id"] == "mine"
        assert (row["mailbox"], row["content"]) == ("default/coder", b'{"do":"bump","by":[1,2]}')
        assert (row["type"], row["priority"], row["delay_ms"], row["ttl_ms"]) == ("order", 2, 50, 9500)
        assert (row["ordering_key"], row["task_id"], row["tags"]) == ("k", "t", ["a"])
        assert (row["reply_to"], row["requires_ack"]) == ("default/reviewer", True)
        assert row["extra"] == '{"x":"y"}'

    def test_bytes_stay_bytes_and_null_columns_take_the_default(self, data: Path) -> None:
        (row,) = self.write(data, Row(to="coder", content=b"\x00\xff", priority=None, id=None))
        assert (row["content"], row["encoding"], row["priority"]) == (b"\x00\xff", 1, 3)

    def test_a_topic_is_published_to(self, data: Path) -> None:
        rows = self.write(
            data, Row(to=None, topic="news", content="x"), Row(to="coder", topic=None, content="y")
        )
        assert {(row["operation"], row["topic"], row["targets"]) for row in rows} == {
            ("PUBLISH", "default/news", 1),
            ("APPEND", None, None),
        }

    @pytest.mark.parametrize(
        ("row", "why"),
        [
            (Row(content="x"), "row 0 must have either to or topic, and has neither"),
            (Row(to="a", topic="b", content="x"), "has to and topic"),
            (Row(to="a", content="x", priority=9), "row 0: priority must be"),
            (Row(to="a", content=float("nan")), "row 0: content"),
        ],
    )
    def test_a_row_that_cannot_be_sent_fails_its_task(self, data: Path, row: Row, why: str) -> None:
        with pytest.raises(InvalidEnvelope, match=why):
            BatchWriter(options(data)).write(iter([row]))


class TestStream:
    def test_a_micro_batch_that_is_repeated_adds_nothing(self, data: Path) -> None:
        writer = StreamWriter(options(data, idPrefix="query"))
        for batch in (0, 0, 1):
            writer.commit([staged(writer, messages(3))], batch)
        assert Counter(row["message_id"] for row in accepted(data)) == {
            f"query-{batch}-0-{i}": 1 for batch in (0, 1) for i in range(3)
        }

    def test_an_empty_micro_batch_opens_no_mesh(self, tmp_path: Path) -> None:
        writer = StreamWriter(options(tmp_path / "nowhere"))
        writer.commit([staged(writer, [])], 0)
        assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("columns", "given", "why"),
    [
        ("to content colour", {"path": "."}, "no column colour"),
        ("to", {"path": "."}, "need the columns content"),
        ("content", {"path": "."}, "and to or topic"),
        ("to content", {}, "path is missing"),
        ("to content", {"path": ".", "timeout": "soon"}, "timeout must be seconds"),
    ],
)
def test_what_cannot_be_sent_is_said_before_a_task_runs(
    columns: str, given: dict[str, str], why: str
) -> None:
    schema = StructType()
    for name in columns.split():
        schema = schema.add(name, "string")
    with pytest.raises(InvalidSettings, match=why):
        WriterOptions.parse(given, schema, overwrite=False)


class TestInSpark:
    def test_a_data_frame_is_sent(self, spark: SparkSession, data: Path) -> None:
        frame = spark.range(100).selectExpr(
            "'coder' AS to", "named_struct('n', id) AS content", "concat('k', id % 3) AS key"
        )
        frame.repartition(3).write.format("relaymesh").option("path", str(data)).mode("append").save()
        rows = accepted(data)
        assert len(rows) == 100
        assert {row["content"] for row in rows} == {b'{"n":%d}' % i for i in range(100)}
        with pytest.raises(Exception, match="cannot be overwritten"):
            frame.write.format("relaymesh").option("path", str(data)).mode("overwrite").save()

    def test_a_failing_task_sends_nothing(self, spark: SparkSession, data: Path) -> None:
        frame = spark.range(10).selectExpr(
            "'coder' AS to", "id AS content", "CAST(id + 1 AS int) AS priority"
        )
        with pytest.raises(Exception, match="priority must be 1"):
            frame.write.format("relaymesh").option("path", str(data)).mode("append").save()
        assert accepted(data) == []

    def test_a_stream_is_sent_and_goes_on(self, spark: SparkSession, data: Path, tmp_path: Path) -> None:
        source = tmp_path / "rows"

        def run() -> None:
            query = (
                spark.readStream.schema("to string, content string")
                .json(str(source))
                .writeStream.format("relaymesh")
                .option("path", str(data))
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(120)

        for number in range(2):
            source.mkdir(exist_ok=True)
            (source / f"{number}.json").write_text(f'{{"to": "coder", "content": "{number}"}}\n')
            run()
        rows = accepted(data)
        assert [row["content"] for row in rows] == [b'"0"', b'"1"']
        first, second = (row["message_id"].rsplit("-", 3) for row in rows)
        assert first[0] == second[0], "the ids of one query begin with its id"
        assert (first[1:], second[1:]) == (["0", "0", "0"], ["1", "0", "0"])

    def test_a_batch_write_in_foreach_batch_that_is_repeated_adds_nothing(
        self, spark: SparkSession, data: Path, tmp_path: Path
    ) -> None:
        source = tmp_path / "rows"
        source.mkdir()
        (source / "0.json").write_text('{"to": "coder", "content": "0"}\n')

        def twice(frame: DataFrame, _batch: int) -> None:
            for columns in (["to", "content"], ["to", "content"], ["to", "upper('b') AS content"]):
                frame.selectExpr(*columns).write.format("relaymesh").option("path", str(data)).mode(
                    "append"
                ).save()

        query = (
            spark.readStream.schema("to string, content string")
            .json(str(source))
            .writeStream.foreachBatch(twice)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        rows = accepted(data)
        assert sorted(row["content"] for row in rows) == [b'"0"', b'"B"']
        assert all(row["message_id"].startswith(f"{query.id}-0-") for row in rows)
