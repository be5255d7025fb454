"""A page in a real browser, and what is wrong with its layout."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SLOW_MS = 120_000
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDTHS = [1440, 720, 500, 360]
LAYOUT = (Path(__file__).parent / "layout.js").read_text(encoding="utf-8")


def chromium() -> str | None:
    """The browser of this machine."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


@contextmanager
def launched() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), headless=True, args=FLAGS, timeout=SLOW_MS
        )
        yield browser
        browser.close()


def opened(browser: Browser, file: Path, width: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_default_timeout(SLOW_MS)
    page.goto(file.as_uri())
    return page


def faults(page: Page) -> list[str]:
    """Labels that are clipped or overlap, and a page that scrolls sideways: a line for each."""
    found: list[str] = page.evaluate(LAYOUT)
    return found
