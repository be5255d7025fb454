"""docs/reference/cli.md is what the commands are."""

from __future__ import annotations

import re

from relaymesh.cli.reference import commands, page
from tests.project.tree import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"


def test_the_page_is_the_one_the_commands_make() -> None:
    made = "python -m relaymesh.cli.reference > docs/reference/cli.md"
    assert PAGE.read_text(encoding="utf-8") == page(), f"make it again: {made}"


def test_the_page_lists_exactly_the_commands_and_options_there_are() -> None:
    text = PAGE.read_text(encoding="utf-8")
    sections = re.split(r"^### `", text, flags=re.MULTILINE)[1:]
    listed = {}
    for section in sections:
        name = re.split(r" [A-Z\[]|`", section)[0]
        listed[name] = set(re.findall(r"^\| `(--[a-z-]+)", section, re.MULTILINE))
    there = {
        path: {opt for param in command.params for opt in param.opts if opt.startswith("--")}
        for path, command in commands()
    }
    assert listed == there


def test_every_command_takes_dir_and_json() -> None:
    for path, command in commands():
        options = {opt for param in command.params for opt in param.opts}
        assert {"--dir", "--json"} <= options, path


def test_every_command_and_option_is_described() -> None:
    for path, command in commands():
        assert command.help, path
        assert all(param.help for param in command.params), path
