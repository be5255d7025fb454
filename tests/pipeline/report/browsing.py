"""A page in a real browser, and what is wrong with its layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SLOW_MS = 120_000
WIDTHS = [1440, 500]
LAYOUT = (Path(__file__).parent / "layout.js").read_text(encoding="utf-8")


def opened(browser: Browser, file: Path, width: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(SLOW_MS)
    page.goto(file.as_uri())
    return page


def faults(page: Page) -> list[str]:
    """Labels that are clipped or overlap, and a page that scrolls sideways: a line for each."""
    found: list[str] = page.evaluate(LAYOUT)
    return found
