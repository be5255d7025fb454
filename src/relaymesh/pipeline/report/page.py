"""The page: every figure asked, drawn and written into one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from relaymesh import __version__
from relaymesh.modes import PRIVATE, Modes
from relaymesh.pipeline.report.attention import attention_of
from relaymesh.pipeline.report.figure import Bucket, Figure, Section
from relaymesh.pipeline.report.proposal import proposal_of
from relaymesh.pipeline.report.published import Answer, Published
from relaymesh.pipeline.report.sections import all_sections
from relaymesh.pipeline.shown import Cell, cell, count, exact, heading
from relaymesh.pipeline.tables.durable import swap_file
from relaymesh.pipeline.tables.sources import known_sources
from relaymesh.pipeline.tables.views import VIEWS, views_sql

__all__ = ["BYTES_MAX", "Balance", "Page", "build_page", "write_page"]

BYTES_MAX = 2_000_000
SUGGESTIONS_MAX = 50
VIEWS_MAX = 200_000


class Missing(msgspec.Struct, frozen=True):
    """Events of a journal that did not read back."""

    source: str
    first: int
    last: int
    why: str
    path: str = ""

    @property
    def place(self) -> str:
        """Where the mesh was read, and which one it is."""
        return f"{self.path} (mesh {self.source})" if self.path else self.source


class Balance(msgspec.Struct, frozen=True):
    """Does what was accepted add up? As the run told it, which counted events and rows."""

    accepted: int = 0
    acked: int = 0
    dropped: int = 0
    dead: int = 0
    pending: int = 0
    redriven: int = 0
    purged: int = 0
    counted_alike: bool = msgspec.field(name="balanced", default=False)
    judged: bool = False
    missing: list[Missing] = []
    counts_from: str | None = None
    """The first day of which messages are counted, where retention has removed those before."""

    @property
    def settled_and_pending(self) -> int:
        return self.acked + self.dropped + self.dead + self.pending

    @property
    def holds(self) -> bool:
        return self.counted_alike and self.accepted == self.settled_and_pending


@dataclass(frozen=True)
class Table:
    """The rows of an answer as people read them. A heading: column, words, and `n` above numbers."""

    headings: list[tuple[str, str, str]]
    rows: list[list[Cell]]

    @classmethod
    def of(cls, answer: Answer) -> Table:
        rows = [[cell(name, value, each) for name, value in each.items()] for each in answer.records()]
        kinds = [
            "n" if any(each.kind == "n" for each in column) else "" for column in zip(*rows, strict=True)
        ]
        kinds = kinds or [""] * len(answer.columns)
        rows = [
            [each if each.kind else replace(each, kind=kind) for each, kind in zip(row, kinds, strict=True)]
            for row in rows
        ]
        headings = [(name, heading(name), kind) for name, kind in zip(answer.columns, kinds, strict=True)]
        return cls(headings, rows)


@dataclass(frozen=True)
class Drawn:
    """A figure with its answer. One whose table is not published has no answer, and says so."""

    figure: Figure
    place: str
    """`wide`, `left` or `right`: the same on every page."""
    answer: Answer | None
    picture: Markup | None

    table: Table


@dataclass(frozen=True)
class Page:
    """What was built."""

    html: str
    run_id: str
    figures: tuple[str, ...]
    balance: Balance


def build_page(published: Published, *, made_at: datetime, sample: bool = False) -> Page:
    """Raises nothing about the data: what is missing or wrong is shown."""
    manifest = published.manifest
    first, last = published.span()
    bucket = Bucket.of(first, last)
    drawn = [
        (section, [_draw(published, *each) for each in _places(section)])
        for section in all_sections(bucket, manifest.run_id)
    ]
    suggestions = proposal_of(published, made_at).suggestions
    style = _source("style.css")
    balance = msgspec.convert(manifest.reconciliation, Balance)
    html = _environment().get_template("page.html").render(
        manifest=manifest,
        version=__version__,
        made_at=made_at,
        sample=sample,
        first=first,
        last=last,
        balance=balance,
        audit=_audit_verdict(published),
        sections=drawn,
        attention=attention_of(published, len(suggestions)),
        suggestions=suggestions,
        suggestions_max=SUGGESTIONS_MAX,
        views=_views(published),
        paths={each.id: each.path for each in known_sources(published.root).values()},
        style=Markup(style),
        style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
    )  # fmt: skip
    names = tuple(each.figure.name for _, figures in drawn for each in figures)
    return Page(html, manifest.run_id, names, balance)


def write_page(page: Page, path: Path, modes: Modes = PRIVATE) -> int:
    """Replace the file whole. Returns its size."""
    data = page.html.encode()
    swap_file(path, data, modes)
    return len(data)


def _places(section: Section) -> Iterator[tuple[Figure, str]]:
    """Two figures beside each other, or a wide one alone, whatever they hold."""
    at_left = True
    for figure in section.figures:
        yield figure, "wide" if figure.wide else "left" if at_left else "right"
        at_left = True if figure.wide else not at_left


def _draw(published: Published, figure: Figure, place: str) -> Drawn:
    if not published.has(*published.tables_in(figure.sql)):
        return Drawn(figure, place, None, None, Table([], []))
    answer = published.ask(figure.sql, figure.rows_max)
    picture = figure.draw(figure.title, answer) if figure.draw is not None and answer.rows else None
    return Drawn(figure, place, answer, picture, Table.of(answer))


def _audit_verdict(published: Published) -> tuple[int, int] | None:
    """Rules, and those of them that are broken; None when no audit is published."""
    if not published.has("audit_summary"):
        return None
    [(rules, broken)] = published.ask("SELECT count(*), count_if(NOT passed) FROM audit_summary", 1).rows
    return (rules, broken) if rules else None


def _views(published: Published) -> str:
    """What gives the names of the tables to a DuckDB that is started in the warehouse."""
    sql = views_sql(published.manifest)
    if len(sql) > VIEWS_MAX:
        return f"-- The tables have too many files for a page. In the warehouse: duckdb -init {VIEWS}"
    return sql


def _environment() -> Environment:
    loader = PackageLoader("relaymesh.pipeline.report", "template")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"minute": _minute, "count": count, "exact": exact, "setting": _setting}
    return environment


def _minute(moment: datetime) -> str:
    return f"{moment:%d %b %Y, %H:%M}"


def _setting(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else exact(value)


def _source(name: str) -> str:
    return (Path(__file__).parent / "template" / name).read_text(encoding="utf-8")
