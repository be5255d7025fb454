"""The page in a real browser: no complaint, no request, every plot with its table, in light and in dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from relaymesh.pipeline.report.page import build_page, write_page
from relaymesh.pipeline.report.published import Published
from tests.pipeline.report.conftest import MADE_AT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SLOW_MS = 120_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium, headless=True, args=FLAGS, timeout=SLOW_MS
        )
        yield launched
        launched.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_whole_without_a_request_or_a_complaint(
    browser: Browser, warehouse: Path, tmp_path: Path, scheme: Literal["light", "dark"]
) -> None:
    file = tmp_path / "report.html"
    with Published(warehouse) as published:
        write_page(build_page(published, made_at=MADE_AT), file)
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1240, "height": 900})
    page.set_default_timeout(SLOW_MS)
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert said == []
    assert asked == [file.as_uri()]
    assert page.locator("svg.chart").count() > 18
    without = (
        "cards => cards.filter(c => !c.querySelector('details table') || !c.querySelector('pre')).length"
    )
    assert page.locator("article:has(svg)").evaluate_all(without) == 0
    empty = "all => all.filter(each => each.getBoundingClientRect().height < 20).length"
    assert page.locator("svg.chart").evaluate_all(empty) == 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")  # the style was let in
    assert background == {"light": "rgb(245, 246, 248)", "dark": "rgb(18, 22, 28)"}[scheme]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1240
    page.close()
