"""The prose names its subjects: what users and engineers read is written in plain English.

The prose is the comments and string literals of `src`, its schemas and templates, and the Markdown pages.
Names in code are not prose: in a Markdown page, code fences and `code` are left out.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.tree import ROOT, SOURCE, project_files

SUBJECT = "name the subject: the client, the caller, the receiver, the process, a person, no agent"
REWRITE = {
    "It waited until now: what it stands in": "Mark the queue slot of a still-waiting entry as stale.",
    "for good or ill": "say what is counted: Count these as breaker successes: the receiver responded.",
    "the data directory is noted to have": "None: use the mirror recorded in the data directory, if any.",
    "from the one to the other": (
        "Random delay between `backoff_s_min` and a ceiling that doubles per failure, up to `backoff_s_max`."
    ),
    "which no ps shows": "Access token. Prefer RELAYMESH_TOKEN: arguments are visible in `ps`.",
    "Who asks for": "start with a verb: Import the mesh lazily",
}
"""What not to write, and what to write in its place: the sentences that were hardest to read."""

RULES = (
    (re.compile(r"\b(?:who(?:m)?ever|(?:no|some|any|every)body)\b(?!\.\w)", re.IGNORECASE), SUBJECT),
    (re.compile(r"\bwho asks\b", re.IGNORECASE), SUBJECT),
    (re.compile(r"\b(?:is|are|was|were) well\b(?! (?:known|\w+ed)\b)", re.IGNORECASE), "say what was found"),
    (re.compile(r"\bAnswers (?:how|the|whether|what|its?|why|None|True|False)\b"), "Returns ..."),
    *((re.compile(re.escape(bad), re.IGNORECASE), good) for bad, good in REWRITE.items()),
)

FENCE = re.compile(r"^ *(`{3,}|~{3,})")
CODE = re.compile(r"`[^`]*`")
PAGES = (".md",)
TEXTS = (".json", ".html", ".sql", ".md", ".txt")

STRINGS = {tokenize.COMMENT, tokenize.STRING} | (
    {tokenize.FSTRING_MIDDLE} if hasattr(tokenize, "FSTRING_MIDDLE") else set()
)


def faults(number: int, text: str) -> Iterator[str]:
    """`line: what stands there -> what to write`, for text that starts at the line of that number.

    A sentence may be broken over two lines, with the sign of a comment between them.
    """
    joined = re.sub(r"\n[ #]*", lambda gap: "\n" + " " * (len(gap[0]) - 1), text)
    for pattern, instead in RULES:
        spaced = re.compile(pattern.pattern.replace(r"\ ", " ").replace(" ", r"\s+"), pattern.flags)
        for match in spaced.finditer(joined):
            line = number + joined.count("\n", 0, match.start())
            yield f"{line}: {' '.join(match[0].split())} -> {instead}"


def prose_of_python(text: str) -> Iterator[tuple[int, str]]:
    """Comments and string literals. Comments on lines that follow one another are one text."""
    comment: list[str] = []
    start = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] == start + len(comment):
                comment.append(token.string)
                continue
            if comment:
                yield start, "\n".join(comment)
            start, comment = token.start[0], [token.string]
        elif token.type in STRINGS:
            yield token.start[0], token.string
    if comment:
        yield start, "\n".join(comment)


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    """The page without its code."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = FENCE.match(line)
        if fence:
            lines.append("")
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            lines.append("")
            fence = mark[1]
        else:
            lines.append(CODE.sub("`code`", line))
    yield 1, "\n".join(lines)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from prose_of_python(text)
    elif path.suffix in PAGES:
        yield from prose_of_page(text)
    else:
        yield 1, text


def read_by_people() -> list[Path]:
    pages = {ROOT / name for name in ("README.md", "CHANGELOG.md", "ARCHITECTURE.md")}
    return [
        path
        for path in project_files()
        if path in pages
        or (path.is_relative_to(ROOT / "docs") and path.suffix in PAGES)
        or (path.is_relative_to(SOURCE) and path.suffix in (".py", *TEXTS))
    ]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def faults_of(path: Path) -> list[str]:
    return [f"{shown(path)}:{fault}" for number, text in prose(path) for fault in faults(number, text)]


def test_the_prose_names_its_subjects() -> None:
    found = [fault for path in read_by_people() for fault in faults_of(path)]
    assert not found, f"{len(found)} places to write in plain English:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('"""Whoever waits is told."""', "1: Whoever"),
        ("# the loop is closed: nobody\n# waits any more", "1: nobody"),
        ("x = 1\n# settled, for good\n# or ill", "2: for good or ill"),
        ('"""Wait for the latch. Answers whether it opened."""', "1: Answers whether"),
        ('raise Failed(f"{name} is well")', "1: is well"),
        ('help="The credential for it; better RELAYMESH_TOKEN, which no ps shows."', "1: which no ps shows"),
    ],
)
def test_the_lint_sees_what_it_is_for(line: str, found: str) -> None:
    seen = [fault for number, text in prose_of_python(line + "\n") for fault in faults(number, text)]
    assert [fault.split(" -> ")[0] for fault in seen] == [found]


@pytest.mark.parametrize(
    "line",
    [
        "from stages import nobody",
        '"""Answers that came are kept."""',
        '"""It is well known."""',
        "# nobody.py",
    ],
)
def test_the_lint_leaves_names_and_other_meanings_alone(line: str) -> None:
    assert not [fault for number, text in prose_of_python(line + "\n") for fault in faults(number, text)]


def test_the_code_of_a_page_is_no_prose() -> None:
    page = "Call `nobody()`:\n\n```python\nnobody()\n```\n\nNobody calls it.\n"
    seen = [fault for number, text in prose_of_page(page) for fault in faults(number, text)]
    assert [fault.split(" -> ")[0] for fault in seen] == ["7: Nobody"]
