"""The page in a real browser: no complaint, no request, every plot with its table, in light and in dark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from relaymesh.pipeline.report.page import build_page, write_page
from relaymesh.pipeline.report.published import Published
from tests.pipeline.report.browsing import SLOW_MS, WIDTHS, faults, opened
from tests.pipeline.report.conftest import MADE_AT
from tests.pipeline.report.hostile import BIG, hostile, single_day, two_years
from tests.pipeline.report.warehouse import SUMS, full, publish

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DATA = {
    "everything": full,
    "hostile": hostile,
    "one day": single_day,
    "two years": two_years,
    "nothing": dict,
}
HUGE = dict.fromkeys(SUMS, BIG) | {"accepted": 4 * BIG, "balanced": True, "judged": True}


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
    assert page.locator(".chart").count() > 18
    without = (
        "cards => cards.filter(c => !c.querySelector('details table') || !c.querySelector('pre')).length"
    )
    assert page.locator("article:has(.chart)").evaluate_all(without) == 0
    empty = "all => all.filter(each => each.getBoundingClientRect().height < 20).length"
    assert page.locator(".chart").evaluate_all(empty) == 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")  # the style was let in
    assert background == {"light": "rgb(244, 245, 247)", "dark": "rgb(17, 21, 27)"}[scheme]
    assert page.evaluate("document.documentElement.scrollWidth") <= 1240
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("data", DATA)
def test_nothing_is_clipped_nothing_overlaps_and_the_page_does_not_scroll_sideways(
    browser: Browser, tmp_path: Path, data: str, width: int
) -> None:
    warehouse = publish(tmp_path / "tables", DATA[data](), reconciliation=HUGE)
    page = shown(browser, warehouse, tmp_path / "report.html", width)
    assert faults(page) == []
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert faults(page) == [], "with every table and every query open"
    page.close()


@pytest.mark.slow
def test_every_card_keeps_its_place_whatever_it_holds(browser: Browser, tmp_path: Path) -> None:
    places = {}
    for data, rows in DATA.items():
        warehouse = publish(tmp_path / data.replace(" ", "-"), rows())
        page = shown(browser, warehouse, tmp_path / "report.html", 1440)
        places[data] = page.locator("article").evaluate_all(
            "all => all.map(each => [each.id, each.offsetLeft, each.offsetWidth])"
        )
        page.close()
    assert len(places["nothing"]) > 25
    assert all(each == places["nothing"] for each in places.values())


def shown(browser: Browser, warehouse: Path, file: Path, width: int) -> Page:
    with Published(warehouse) as published:
        write_page(build_page(published, made_at=MADE_AT, sample=True), file)
    return opened(browser, file, width)


FAULTS = {
    "the page is": "document.querySelector('main').style.minWidth = '3000px'",
    "clipped in figure-latency": "Object.assign(document.querySelector('#figure-latency h3').style,"
    " {width: '20px', overflow: 'hidden', whiteSpace: 'nowrap'})",
    "outside its picture in figure-throughput": "document.querySelector('#figure-throughput .area text')"
    ".setAttribute('x', '120%')",
    "overlap in figure-throughput": "for (const each of document.querySelectorAll('#figure-throughput"
    " .area text')) each.setAttribute('x', '50%')",
    "cut at the front in figure-latency": "document.querySelector('#figure-latency .label').textContent ="
    " '…-coder'",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_of_the_layout_finds_what_it_is_for(
    browser: Browser, warehouse: Path, tmp_path: Path, fault: str
) -> None:
    page = shown(browser, warehouse, tmp_path / "report.html", 1440)
    page.evaluate(FAULTS[fault])
    assert [each for each in faults(page) if each.startswith(fault)]
    page.close()
