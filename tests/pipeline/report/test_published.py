"""SQL over the published tables: these tables, and nothing else of the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from relaymesh.errors import InvalidSettings, NotFound
from relaymesh.pipeline.report.notebook import notebook
from relaymesh.pipeline.report.published import Published
from tests.pipeline.report.warehouse import publish


def test_an_answer_has_the_first_rows_and_counts_the_rest(warehouse: Path) -> None:
    with Published(warehouse) as published:
        answer = published.ask("SELECT trace_id, duration_ms FROM message_traces ORDER BY duration_ms", 7)
    assert (answer.columns, len(answer.rows), answer.total, answer.more) == (
        ("trace_id", "duration_ms"),
        7,
        60,
        53,
    )
    assert answer.column("duration_ms") == [0, 1000, 2000, 3000, 4000, 5000, 6000]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('/*')",
        "COPY messages TO '{file}'",
        "ATTACH '{file}.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "CREATE TABLE t AS SELECT 1",
        "DROP VIEW messages",
        "SELECT * FROM nowhere",
        "not even SQL",
        "",
    ],
)
def test_what_does_not_read_a_published_table_is_refused(query: str, warehouse: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    with Published(warehouse) as published, pytest.raises(InvalidSettings):
        published.ask(query.format(file=secret), 10)
    assert secret.read_text() == "a,b\n1,2\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv", "tables"]


def test_variables_of_the_caller_are_no_tables(warehouse: Path) -> None:
    local = pa.table({"secret": [1]})
    assert local.num_rows == 1
    with Published(warehouse) as published, pytest.raises(InvalidSettings, match="local"):
        published.ask("SELECT * FROM local", 1)


def test_a_warehouse_without_a_publish_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as refused:
        Published(tmp_path)
    assert refused.value.hint == "relaymesh pipeline run"


def test_tables_of_another_format_are_refused_in_words(tmp_path: Path) -> None:
    publish(tmp_path, {}, table_format="delta")
    with pytest.raises(InvalidSettings, match="are delta, and reports read Parquet"):
        Published(tmp_path)


def test_every_cell_of_the_notebook_runs(warehouse: Path) -> None:
    with Published(warehouse) as published:
        written = json.loads(json.dumps(notebook(published)))
    assert (written["nbformat"], written["nbformat_minor"]) == (4, 5)
    cells = written["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 20
    names: dict[str, Any] = {}
    for source in code:
        exec(source, names)
    names["db"].close()


def test_a_published_file_that_is_gone_is_named_with_the_way_to_make_it_anew(warehouse: Path) -> None:
    victim = next((warehouse / "tables" / "latency").rglob("*.parquet"))
    victim.unlink()
    with pytest.raises(NotFound, match=f"{victim} of latency is gone") as refused:
        Published(warehouse)
    assert "relaymesh pipeline run" in refused.value.hint
    assert "--dir" not in refused.value.hint
