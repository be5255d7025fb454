"""The pictures of a report in docs/images, from the sample: `make screenshots`.

With the path of a page as its argument it takes that page, and starts no Spark.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Literal

from relaymesh.cli.main import main
from tests.pipeline.report.browsing import SLOW_MS, launched
from tests.project.tree import ROOT

IMAGES = ROOT / "docs" / "images"
LAST = {1440: "#latency", 500: "#figure-final_states"}
"""A picture goes from the top of the page to the end of this."""
BELOW = 16
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def take(page: Path, images: Path) -> list[Path]:
    """One picture for each width and scheme."""
    taken = []
    with launched() as browser:
        for width, last in LAST.items():
            for scheme in SCHEMES:
                view = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
                view.set_default_timeout(SLOW_MS)
                view.goto(page.as_uri())
                path = images / f"report-{width}-{scheme}.png"
                end = view.locator(last).evaluate("each => each.getBoundingClientRect().bottom")
                view.set_viewport_size({"width": width, "height": round(end) + BELOW})
                view.screenshot(path=path)
                view.close()
                taken.append(path)
    return taken


def sample(folder: Path) -> Path:
    page = folder / "report.html"
    code = main(["report", "build", "--sample", "--out", str(page)])
    if code != 0:
        sys.exit(code)
    return page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else sample(Path(folder))
        for path in take(page, IMAGES):
            print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")
