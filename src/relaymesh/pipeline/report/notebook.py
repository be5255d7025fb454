"""A notebook that asks the same questions: nbformat 4, written by hand, so nothing more is needed here."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from relaymesh.modes import PRIVATE, Modes
from relaymesh.pipeline.report.figure import Bucket, Section
from relaymesh.pipeline.report.published import Published
from relaymesh.pipeline.report.sections import all_sections
from relaymesh.pipeline.tables.durable import swap_file

__all__ = ["notebook", "write_notebook"]

_OPEN = """\
import json
from pathlib import Path

import duckdb
import pandas as pd

WAREHOUSE = Path({warehouse})

manifest = json.loads((WAREHOUSE / "manifest.json").read_text())
db = duckdb.connect()
db.execute("SET TimeZone = 'UTC'")
for name, table in manifest["tables"].items():
    files = [str(WAREHOUSE / file["path"]) for part in table["parts"] for file in part["files"]]
    if files:
        db.read_parquet(files, hive_partitioning=False).create_view(name)
pd.DataFrame(
    [{{"table": t["name"], "layer": t["layer"], "rows": t["rows"]}} for t in manifest["tables"].values()]
)"""


def notebook(published: Published) -> dict[str, Any]:
    """Cells that read the warehouse's newest tables, and one for every figure that has rows now."""
    where = json.dumps(str(published.root))
    cells = [
        _cell("markdown", "# RelayMesh tables\n\nEvery cell reads what is published when it runs."),
        _cell("code", _OPEN.format(warehouse=where)),
    ]
    for section in all_sections(Bucket.of(*published.span()), published.manifest.run_id):
        cells += _section(section, published)
    for number, cell in enumerate(cells):
        cell["id"] = hashlib.sha256(f"{number} {cell['source']}".encode()).hexdigest()[:12]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "cells": cells,
    }


def _section(section: Section, published: Published) -> list[dict[str, Any]]:
    cells = [_cell("markdown", f"## {section.title}")]
    filled = {name for name, table in published.manifest.tables.items() if table.rows}
    for figure in section.figures:
        if published.tables_in(figure.sql) <= filled:
            cells.append(_cell("markdown", f"### {figure.title}\n\n{figure.says}"))
            cells.append(_cell("code", f'db.sql("""\n{figure.sql}\n""").df()'))
    return cells if len(cells) > 1 else []


def _cell(kind: str, source: str) -> dict[str, Any]:
    more: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": source, **more}


def write_notebook(published: Published, path: Path, modes: Modes = PRIVATE) -> int:
    """Replace the file whole. Returns its size."""
    data = json.dumps(notebook(published), indent=1, ensure_ascii=False).encode() + b"\n"
    swap_file(path, data, modes)
    return len(data)
