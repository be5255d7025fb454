"""Content in payload files: bronze holds it, or says which file is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from relaymesh import JournalDamaged, Mesh
from tests.pipeline.source.journals import read_rows

LARGE = {"text": "x" * 100_000}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Mesh(tmp_path) as mesh:
        mesh.agent("b")
        mesh.agent("a").send("b", LARGE)
        mesh.agent("a").send("b", b"\x00" * 70_000)
        mesh.agent("a").send("b", "small")
    return tmp_path


def appended(path: Path, **options: str) -> list[dict[str, Any]]:
    return [row for row in read_rows(path, **options) if row["operation"] == "APPEND"]


def test_rows_hold_the_content_and_its_size(path: Path) -> None:
    rows = appended(path)
    assert [(row["encoding"], row["content_bytes"]) for row in rows] == [(0, 100_011), (1, 70_000), (0, 7)]
    assert [row["content"] for row in rows] == [
        b'{"text":"%s"}' % (b"x" * 100_000),
        bytes(70_000),
        b'"small"',
    ]


def test_without_content_the_files_are_not_read(path: Path) -> None:
    shutil.rmtree(path / "payloads")
    rows = appended(path, includeContent="false")
    assert [row["content"] for row in rows] == [None, None, None]
    assert [row["content_bytes"] for row in rows] == [100_011, 70_000, 7]


def test_a_missing_file_is_an_error_or_a_row_without_content(path: Path) -> None:
    files = [file for file in (path / "payloads").rglob("*") if file.is_file()]
    missing = min(files, key=lambda file: file.stat().st_size)
    missing.unlink()
    with pytest.raises(JournalDamaged, match=f"{missing.name} is damaged: it is missing"):
        read_rows(path)
    rows = appended(path, quarantine="rows")
    assert [row["content"] is None for row in rows] == [False, True, False]
    [told] = read_rows(path, table="quarantine", quarantine="rows")
    assert told["reason"] == f"payloads/{missing.name[:2]}/{missing.name}: it is missing; no event is missing"
