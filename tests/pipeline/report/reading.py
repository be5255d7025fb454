"""A report as a reader without a browser sees it: its figures, their tables and their SQL."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Card:
    """One `<article>`."""

    name: str
    pictures: int = 0
    words: list[str] = field(default_factory=list)
    """What the pictures say in `<title>`."""
    headings: list[str] = field(default_factory=list)
    """The columns, by the names that a query has for them."""
    rows: list[list[str]] = field(default_factory=list)
    code: str = ""
    text: str = ""


class Reader(HTMLParser):
    """Collects the cards, and every element that could ask for something outside."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.cards: list[Card] = []
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.handlers: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    @property
    def figures(self) -> dict[str, Card]:
        prefix = "figure-"
        return {card.name.removeprefix(prefix): card for card in self.cards if card.name.startswith(prefix)}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        self.references += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")
        ]
        self.handlers += [name for name in given if name.startswith("on") or name == "style"]
        if tag == "article":
            self.cards.append(Card(given.get("id") or ""))
        if "chart" in (given.get("class") or "").split():
            self.cards[-1].pictures += 1
        if tag == "td" and "figure" in self._open:  # a field of heat: its words are its title
            self.cards[-1].words.append(given.get("title") or "")
        elif tag == "td":
            self.cards[-1].rows[-1].append("")
        if tag == "th" and "figure" not in self._open:
            self.cards[-1].headings.append(given.get("title") or "")
        if tag == "tr" and "figure" not in self._open:
            self.cards[-1].rows.append([])
        if tag not in ("meta", "link", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        if not self.cards or not self._open:
            return
        card, tag = self.cards[-1], self._open[-1]
        card.text += data
        if tag == "title":
            card.words.append(data)
        elif tag == "td" and "figure" not in self._open:
            card.rows[-1][-1] += data
        elif tag == "code" and "pre" in self._open:
            card.code += data
