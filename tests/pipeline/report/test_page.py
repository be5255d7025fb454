"""The page: whole, honest about its sums, and deaf to what names and errors try to tell a browser."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from relaymesh.pipeline.report.page import BYTES_MAX, build_page
from relaymesh.pipeline.report.published import Published
from relaymesh.pipeline.shown import cell
from tests.pipeline.report.conftest import MADE_AT, Building
from tests.pipeline.report.reading import Reader
from tests.pipeline.report.warehouse import DAY, EVIL, NOON, SUMS, box, full

DRAWN_ONLY_AS_TABLES = {"alert_rules", "audit", "expectations", "quarantine", "tasks_waiting"}


def page_of(warehouse: Path) -> str:
    with Published(warehouse) as published:
        return build_page(published, made_at=MADE_AT).html


def test_every_plot_stands_beside_its_table_and_the_sql_that_gives_it(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Reader(page_of(warehouse))
    [tables] = [card for card in page.cards if "CREATE OR REPLACE VIEW" in card.code]
    monkeypatch.chdir(warehouse)  # the paths of the views begin there
    plain = duckdb.connect()
    plain.execute(tables.code)
    assert len(page.figures) > 20
    for name, card in page.figures.items():
        found = plain.execute(card.code)
        columns = [each[0] for each in found.description or ()]
        named = [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
        rows = [[cell(name, value, row).text for name, value in row.items()] for row in named]
        assert rows, f"{name}: the rows made by hand have none for it"
        assert card.headings == columns, name
        assert card.rows[1:] == rows[: len(card.rows) - 1], name
        more = len(rows) - (len(card.rows) - 1)
        assert (f"and {more} more" in card.text) == (more > 0), name
        assert card.pictures == (0 if name in DRAWN_ONLY_AS_TABLES else 1), name
    plain.close()


def test_pictures_say_in_words_what_they_draw(warehouse: Path) -> None:
    figures = Reader(page_of(warehouse)).figures
    assert "coder, P3: 4.5 s (4,500 ms)" in figures["latency"].words
    assert "coder · *, predicted: 0.8 % (0.008)" in figures["failure_rates"].words
    assert "coder · *, observed: 12.5 % (0.125)" in figures["failure_rates"].words
    assert "accepted, 2026-03-01 12:00:00: 10" in figures["throughput"].words
    assert (
        "coder, 2026-03-01 12:02:00: 4" in figures["backlog"].words
    )  # a minute without a row holds what was
    assert any("critical, at worst 1,200 messages" in each for each in figures["alerts"].words)


def test_names_and_errors_are_text_whatever_they_are(warehouse: Path) -> None:
    html = page_of(warehouse)
    page = Reader(html)
    assert EVIL not in html
    assert "<script" not in html.lower()
    assert any(EVIL in word for card in page.cards for word in card.words)
    assert any(EVIL in value for card in page.cards for row in card.rows for value in row)


def test_the_page_asks_for_nothing(warehouse: Path) -> None:
    html = page_of(warehouse)
    page = Reader(html)
    assert {"script", "iframe", "img", "object", "form", "base"} & page.tags == set()
    assert page.handlers == []
    assert [each for each in page.references if not each.startswith("#")] == ["data:,"]
    assert "default-src 'none'; style-src 'sha256-" in html
    assert "url(" not in html
    assert "@import" not in html


def test_sums_that_agree_are_said_and_sums_that_do_not_are_a_red_banner(built: Building) -> None:
    good = built(full())
    assert good.balance.holds
    assert "10 accepted = 6 acked + 1 pending + 2 dead + 1 dropped." in good.html
    assert "of these 1 redriven, 0 purged" in good.html
    lost = {**SUMS, "acked": 5, "balanced": True, "judged": True}
    bad = built({}, reconciliation=lost)
    assert not bad.balance.holds
    assert 'class="banner bad"' in bad.html
    assert "✗ It does not add up" in bad.html
    assert "= 9." in bad.html


def test_rows_counted_otherwise_than_events_are_a_red_banner_too(built: Building) -> None:
    page = built({}, reconciliation={**SUMS, "balanced": False, "judged": True})
    assert not page.balance.holds
    assert "events and rows do not give the same sums" in page.html


def test_events_that_did_not_read_back_are_named_by_their_range(built: Building) -> None:
    gap = {"source": "/mesh/<data>", "first": 10, "last": 18, "why": "the frame's CRC is wrong"}
    page = built({}, reconciliation={**SUMS, "balanced": True, "judged": False, "missing": [gap]})
    assert "▲ Not judged" in page.html
    assert "10 to 18 of <code>/mesh/&lt;data&gt;</code>" in page.html
    assert "It adds up" not in page.html
    assert "The beginning of the journal was gone" not in page.html


def test_days_that_were_forgotten_on_purpose_are_said_beside_the_sums(built: Building) -> None:
    sums = {**SUMS, "balanced": True, "judged": True}
    page = built({}, reconciliation={**sums, "counts_from": "2026-03-04"})
    assert "accepted on 2026-03-04 or later" in page.html
    assert "It adds up" in page.html
    assert "accepted on" not in built({}, reconciliation={**sums, "counts_from": None}).html


def test_a_journal_without_its_beginning_is_not_judged(built: Building) -> None:
    page = built({}, reconciliation={**SUMS, "acked": 99, "balanced": False, "judged": False})
    assert "▲ Not judged" in page.html
    assert "banner bad" not in page.html


def test_a_broken_rule_of_the_audit_is_said_at_the_top(built: Building) -> None:
    rule = {"rule": "settled_once", "promise": "once", "checked": 9, "violations": 2, "passed": False}
    assert "✗ 1 broken" in built({"audit_summary": [rule]}).html


def test_what_waits_for_a_decision_stands_beside_the_name_of_its_section(built: Building) -> None:
    html = built(full()).html
    assert 'title="1 dead letters wait for a decision"' in html
    assert 'title="1 times a critical rule held"' in html
    assert "settings to think about" in html
    assert "rules are broken" not in html


def test_a_mesh_where_nothing_happened_has_a_page(built: Building) -> None:
    page = built({})
    figures = Reader(page.html).figures
    assert set(figures) == set(page.figures)
    assert "No message died." in figures["dead_letters"].text
    assert all(card.pictures == 0 for card in figures.values())


def test_a_mesh_of_thousands_of_mailboxes_stays_within_its_size(built: Building) -> None:
    names = [f"default/{'x' * 80}-{number}" for number in range(3_000)]
    counted = {"accepted": 5, "acked": 3, "retried": 1, "dropped": 0, "dead": 1, "accepted_bytes": 90}
    page = built(
        {
            "throughput": [box(name, day=DAY, minute=NOON, **counted) for name in names],
            "latency": [
                box(name, day=DAY, priority=p, acked=3, latency_p50_ms=7.5, latency_p95_ms=1.0 * p)
                for name in names
                for p in (1, 2, 3, 4, 5)
            ],
            "dead_letters_daily": [
                box(name, day=DAY, reason="ttl_expired", code="ttl_expired", letters=1, first_seen=NOON,
                    last_seen=NOON, example_error="e" * 5_000)
                for name in names
            ],
            "split_advice": [box(name, conditions=1, traffic_share=0.1, reasoning="r") for name in names],
        }
    )  # fmt: skip
    assert len(page.html.encode()) <= BYTES_MAX
    figures = Reader(page.html).figures
    assert "and 2,900 more" in figures["throughput_by_mailbox"].text
    assert "e" * 201 not in page.html
    assert len(figures["throughput_by_mailbox"].rows) == 101


def test_a_report_is_replaced_whole(warehouse: Path, tmp_path: Path) -> None:
    from relaymesh.pipeline.report.page import write_page

    with Published(warehouse) as published:
        page = build_page(published, made_at=MADE_AT)
    size = write_page(page, tmp_path / "new" / "report.html")
    assert (tmp_path / "new" / "report.html").stat().st_size == size
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]
