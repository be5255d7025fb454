"""Bronze to report: `relaymesh report build` on a journal that bronze has already taken in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.pipeline.spent import spent_by_command

__all__ = ["build_report", "build_sample", "run_idle"]

_COMMAND = "import sys; from relaymesh.cli.main import main; sys.exit(main(sys.argv[1:]))"


def build_report(journal: Path, warehouse: Path, place: Path, events: int, cores: int) -> dict[str, Any]:
    """The whole command, from starting Python and Java to the page: tables, audit, publish, HTML."""
    page = place / "report.html"
    words = ["report", "build", "--dir", str(journal), "--warehouse", str(warehouse), "--out", str(page)]
    spent = spent_by_command(["-c", _COMMAND, *words, "--master", f"local[{cores}]"], place / "report.log")
    manifest = json.loads((warehouse / "manifest.json").read_text(encoding="utf-8"))
    record = json.loads((warehouse / "runs" / f"{manifest['run_id']}.json").read_text(encoding="utf-8"))
    return {
        "page_bytes": page.stat().st_size,
        "rows": {name: table["rows"] for name, table in manifest["tables"].items()},
        "stages_s": record["seconds"],
        **spent.figures(events),
    }


def run_idle(journal: Path, warehouse: Path, place: Path) -> dict[str, Any]:
    """`relaymesh pipeline run` when nothing is new; the best of three."""
    words = ["pipeline", "run", "--dir", str(journal), "--warehouse", str(warehouse)]
    every = [spent_by_command(["-c", _COMMAND, *words], place / "idle.log") for _ in range(3)]
    spent = min(every, key=lambda each: each.wall_s)
    return {"wall_s": round(spent.wall_s, 2), "cpu_s": round(spent.cpu_s, 2)}


def build_sample(place: Path) -> dict[str, Any]:
    """`relaymesh report build --sample`: the newcomer's one command."""
    words = ["report", "build", "--sample", "--out", str(place / "sample.html")]
    spent = spent_by_command(["-c", _COMMAND, *words], place / "sample.log")
    return {"wall_s": round(spent.wall_s, 1), "cpu_s": round(spent.cpu_s, 1)}
