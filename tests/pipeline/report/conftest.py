"""Warehouses made by hand, and pages built from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.running import Ran
from tests.pipeline.report.browsing import chromium, launched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from relaymesh.pipeline.report.page import Page

Building = Callable[..., "Page"]
Running = Callable[..., Ran]
MADE_AT = datetime(2026, 3, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if chromium() is None:
        pytest.skip("there is no Chromium here")
    with launched() as opened:
        yield opened


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Something in every table."""
    from tests.pipeline.report.warehouse import full, publish

    return publish(tmp_path / "tables", full())


@pytest.fixture
def report(
    warehouse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Running:
    """Runs `relaymesh report` with that warehouse, in an empty directory."""
    from relaymesh.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RELAYMESH_URL", raising=False)

    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(["report", *words, "--warehouse", str(warehouse)])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def built(tmp_path: Path) -> Building:
    """Publishes rows and builds their page."""
    from relaymesh.pipeline.report.page import build_page
    from relaymesh.pipeline.report.published import Published
    from tests.pipeline.report.warehouse import publish

    def page(rows: Any, **facts: Any) -> Page:
        with Published(publish(tmp_path / "tables", rows, **facts)) as published:
            return build_page(published, made_at=MADE_AT)

    return page
