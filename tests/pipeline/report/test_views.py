"""Views for a DuckDB of one's own: the rows that the manifest names, with the columns that the files hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from relaymesh.pipeline.report.notebook import notebook
from relaymesh.pipeline.report.page import build_page
from relaymesh.pipeline.report.published import Published
from relaymesh.pipeline.tables.manifest import Piece
from tests.pipeline.report.conftest import MADE_AT
from tests.pipeline.report.reading import Reader
from tests.pipeline.report.warehouse import DAY, NOON, RUN, publish

EARLIER = "20260228T000000000Z-0000"
METRICS = [
    {"run_id": run, "measured_at": NOON, "table_name": "t", "metric": "rows", "value": 1.0,
     "severity": "info", "passed": True}
    for run in (EARLIER, RUN)
]  # fmt: skip


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A table with a row that an earlier run measured, in a folder of this run, beside a file of that run."""
    root = publish(tmp_path / "tables", {"pipeline_metrics": METRICS})
    folder = root / "tables" / "pipeline_metrics"
    (folder / f"run_id={EARLIER}").mkdir()
    (folder / f"run_id={EARLIER}" / "part-0.parquet").write_bytes(
        (folder / f"run_id={RUN}" / "part-0.parquet").read_bytes()
    )
    return root


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def runs_in(duck: duckdb.DuckDBPyConnection) -> list[str]:
    return [row[0] for row in duck.execute("SELECT run_id FROM pipeline_metrics ORDER BY run_id").fetchall()]


def test_the_views_of_the_page_keep_the_run_id_of_each_row(
    kept: Path, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Published(kept) as published:
        page = Reader(build_page(published, made_at=MADE_AT).html)
    [tables] = [card for card in page.cards if "VIEW" in card.code]
    monkeypatch.chdir(kept)
    duck.execute(tables.code)
    assert runs_in(duck) == [EARLIER, RUN]


def test_the_notebook_keeps_it_too(kept: Path) -> None:
    with Published(kept) as published:
        [opening] = [cell for cell in notebook(published)["cells"] if "read_parquet" in cell["source"]]
    names: dict[str, duckdb.DuckDBPyConnection] = {}
    exec(opening["source"], names)
    assert runs_in(names["db"]) == [EARLIER, RUN]
    names["db"].close()


def test_views_sql_in_the_warehouse_gives_every_table_its_rows_once(
    kept: Path, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kept)
    duck.execute((kept / "views.sql").read_text(encoding="utf-8"))
    assert runs_in(duck) == [EARLIER, RUN]
    columns = [row[0] for row in duck.execute("DESCRIBE latency").fetchall()]  # no rows, and so no file
    with Published(kept) as published:
        assert columns == [each["name"] for each in published.manifest.tables["latency"].schema["fields"]]


def test_views_sql_is_read_from_elsewhere_and_again_after_a_publish(
    kept: Path, duck: duckdb.DuckDBPyConnection
) -> None:
    duck.execute(f"SET file_search_path = '{kept}'")
    duck.execute((kept / "views.sql").read_text(encoding="utf-8"))
    publish(kept, {}, run_id="20260302T000000000Z-0000")
    duck.execute((kept / "views.sql").read_text(encoding="utf-8"))
    assert runs_in(duck) == []


def test_views_sql_has_the_events_with_their_days(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [Piece("bronze/batch=00000000-x", str(DAY), 1, 1), Piece("bronze/batch=c-x", "2026-03-02", 1, 1)]
    for number, piece in enumerate(pieces):
        folder = tmp_path / piece.folder / f"event_date={piece.day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"sequence": [number], "run_id": ["x"]}), folder / "part-0.parquet")
    publish(tmp_path, {}, bronze=pieces)
    monkeypatch.chdir(tmp_path)
    duck.execute((tmp_path / "views.sql").read_text(encoding="utf-8"))
    found = duck.execute("SELECT sequence, event_date::VARCHAR FROM bronze ORDER BY ALL").fetchall()
    assert found == [(0, "2026-03-01"), (1, "2026-03-02")]
    assert [row[0] for row in duck.execute("DESCRIBE bronze").fetchall()] == [
        "sequence",
        "run_id",
        "event_date",
    ]


def test_tables_of_another_format_have_no_views(kept: Path) -> None:
    publish(kept, {}, table_format="delta")
    assert not (kept / "views.sql").exists()
