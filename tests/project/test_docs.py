"""What the documents show works: README blocks run, links lead somewhere, the changelog knows this version.

Blocks of a document run in order and share one data directory, as they would for a reader who
follows along. `python` blocks run as a program of their own, `sh` blocks as one script, `console`
blocks line by line where a line starts with `$ ` (the other lines are what a reader sees, not
compared). A block that cannot run here stands under a comment that says why:

    <!-- not run: starts a node and waits -->
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.project.tree import ROOT, markdown_files, version

RUN_IN = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial" / "workflow.md",
    ROOT / "docs" / "tutorial" / "team.md",
    ROOT / "docs" / "howto" / "schedules.md",
    ROOT / "docs" / "howto" / "retention.md",
    ROOT / "docs" / "howto" / "tasks.md",
    ROOT / "docs" / "howto" / "agents-without-a-model.md",
]
BLOCK_SECONDS_MAX = 120

PYTHON = {"python", "py"}
SHELL = {"sh", "bash", "shell"}
CONSOLE = {"console"}

NOT_RUN = re.compile(r"<!--\s*not run\b:?\s*(.*?)\s*-->", re.DOTALL)
MAKE_TARGET = re.compile(r"^\s*(?:\$ )?make (?:[A-Z_]+=\S+ )*([a-z]+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Block:
    where: str
    language: str
    text: str
    not_run: str | None  # the reason given, "" when the comment gives none

    def command(self) -> list[str]:
        if self.language in PYTHON:
            return [sys.executable, "-c", self.text]
        script = self.text if self.language in SHELL else prompted(self.text)
        return ["bash", "-euo", "pipefail", "-c", script]


def tokens(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def blocks(text: str, name: str) -> Iterator[Block]:
    """The blocks that a reader may take for commands or code to run."""
    previous: Token | None = None
    for token in tokens(text):
        language = token.info.split()[0].lower() if token.type == "fence" and token.info.strip() else ""
        if language in PYTHON | SHELL | CONSOLE:
            above = previous.content if previous is not None and previous.type == "html_block" else ""
            comment = NOT_RUN.search(above)
            yield Block(
                where=f"{name}:{(token.map or [0])[0] + 1}",
                language=language,
                text=token.content,
                not_run=comment.group(1) if comment else None,
            )
        previous = token


def prompted(text: str) -> str:
    """The commands of a console block: the lines after `$ `, with their continuations."""
    commands, continued = [], False
    for line in text.splitlines():
        if continued or line.startswith("$ "):
            commands.append(line if continued else line[2:])
            continued = line.endswith("\\")
    if not commands:
        raise ValueError("a console block shows its commands after `$ `")
    return "\n".join(commands)


def all_blocks() -> list[Block]:
    return [
        block for document in RUN_IN for block in blocks(document.read_text(encoding="utf-8"), document.name)
    ]


def reader_environment(home: Path) -> dict[str, str]:
    """A reader's shell: the project's own commands first on PATH, a data directory of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("RELAYMESH_", "PYTEST_"))}
    return environment | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]),
        "RELAYMESH_HOME": str(home / "relaymesh"),
        "HOME": str(home),
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.mark.parametrize("document", RUN_IN, ids=lambda path: path.name)
def test_every_block_runs_and_runs_again(document: Path, tmp_path: Path, subtests: pytest.Subtests) -> None:
    """A reader tries an example more than once, in the same data directory."""
    shown = list(blocks(document.read_text(encoding="utf-8"), document.name))
    for round, block in product(("first", "again"), shown):
        if block.not_run is not None:
            continue
        with subtests.test(f"{block.where} {round}"):
            finished = subprocess.run(
                block.command(),
                cwd=tmp_path,
                env=reader_environment(tmp_path),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=BLOCK_SECONDS_MAX,
                check=False,
            )
            assert finished.returncode == 0, f"{block.where}\n{finished.stdout}\n{finished.stderr}"


def test_a_block_that_is_not_run_says_why() -> None:
    assert [block.where for block in all_blocks() if block.not_run == ""] == []


def test_every_make_target_that_is_shown_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    shown = {name for block in all_blocks() for name in MAKE_TARGET.findall(block.text)}
    assert shown - targets == set()


@pytest.mark.parametrize("document", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    dead = [link for link in links(document) if not leads_somewhere(document, link)]
    assert dead == []


def test_the_changelog_has_an_entry_for_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [part for part in re.split(r"^## ", changelog, flags=re.MULTILINE) if part.startswith("[")]
    here = [entry for entry in entries if entry.startswith(f"[{version()}]")]
    assert len(here) == 1
    assert re.search(r"^- \S", here[0], re.MULTILINE), "the entry lists nothing"


def links(document: Path) -> list[str]:
    """Where the document's relative links and images point."""
    found = []
    for token in tokens(document.read_text(encoding="utf-8")):
        for inline in token.children or []:
            target = inline.attrGet("href") or inline.attrGet("src")
            if isinstance(target, str) and not re.match(r"[a-z][a-z0-9+.-]*:|//", target):
                found.append(target)
    return found


def leads_somewhere(document: Path, link: str) -> bool:
    name, _, anchor = unquote(link).partition("#")
    target = (document.parent / name).resolve() if name else document
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def anchors(document: Path) -> set[str]:
    """The names that headings get on a rendered page; a repeated one gets a number."""
    seen: dict[str, int] = {}
    names = set()
    parsed = tokens(document.read_text(encoding="utf-8"))
    for opening, heading in pairwise(parsed):
        if opening.type == "heading_open":
            plain = "".join(part.content for part in heading.children or [])
            name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            names.add(f"{name}-{seen[name]}" if name in seen else name)
            seen[name] = seen.get(name, 0) + 1
    return names


def test_a_document_is_read_as_its_reader_would() -> None:
    text = (
        "```sh\nrelaymesh demo\n```\n"
        "<!-- not run: waits for ever -->\n```console\n$ relaymesh dev\nready\n```\n"
        "<!-- not run -->\n\n```python\nimport relaymesh\n```\n"
        "```json\n{}\n```\n"
    )
    found = [(block.where, block.language, block.not_run) for block in blocks(text, "X")]
    assert found == [("X:1", "sh", None), ("X:5", "console", "waits for ever"), ("X:11", "python", "")]


def test_a_console_block_is_its_prompted_lines() -> None:
    assert prompted("$ a \\\n  --b\nanswer\n$ c\n") == "a \\\n  --b\nc"
    with pytest.raises(ValueError, match="console block"):
        prompted("only output\n")
