"""The protocol's page says what the server does."""

from __future__ import annotations

from tests.server.protocol.page import PATH, page


def test_the_page_is_up_to_date() -> None:
    assert PATH.read_text(encoding="utf-8") == page(), "stale: run python -m tests.server.protocol.page"
