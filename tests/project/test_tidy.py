"""The tree stays one that a newcomer can read: short files, short functions, names that say something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.tree import ROOT, SOURCE, project_files, source_files, text_files

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70  # one screen; the docstring is not counted

SAYS_NOTHING = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers"}

# Written so that none of them finds itself here.
PACKAGE_INDEX = re.compile(
    r"https?://[^\s\"'<>)]*(?:pypi\.|pythonhosted\.|/simple\b|registry\.)|--(?:extra-)?index-[u]rl|--find-[l]inks"
)
MACHINE_PATH = re.compile(r"(?<![\w.~$})\]/-])/(?:home|root|work|opt)\b(?:/|(?![\w-]))")
UNFINISHED = re.compile(r"\b(?:TO[D]O|FIX[M]E|X{3})\b")

POSSESSIVE_GROUP = re.compile(r"\)[*+?]\+|\)\{[\d,]+\}\+")

PLAIN_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._+@-]*")
MAY_BE_EMPTY = {"__init__.py", "py.typed"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[Function]:
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node


def length(function: Function) -> int:
    """Lines from `def` to the end, without the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def places(pattern: re.Pattern[str]) -> list[str]:
    """Where the pattern stands in the project's text: `file:line: what`."""
    return [
        f"{path}:{number}: {match.group()}"
        for path, text in text_files().items()
        for number, line in enumerate(text.splitlines(), start=1)
        for match in pattern.finditer(line)
    ]


def test_no_source_file_is_too_long_to_tell_one_story() -> None:
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in source_files()}
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_every_function_fits_one_screen() -> None:
    too_long = [
        f"{shown(path)}:{function.lineno}: {function.name} has {length(function)} lines"
        for path in source_files()
        for function in functions(path)
        if length(function) > FUNCTION_LINES_MAX
    ]
    assert too_long == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    places = [path for path in SOURCE.rglob("*") if path.suffix == ".py" or path.is_dir()]
    assert [shown(path) for path in places if SAYS_NOTHING & set(path.stem.lower().split("_"))] == []


def test_every_package_says_what_it_promises() -> None:
    silent = []
    for folder in sorted({path.parent for path in source_files()}):
        opening = folder / "__init__.py"
        if not opening.is_file() or not ast.get_docstring(ast.parse(opening.read_text(encoding="utf-8"))):
            silent.append(shown(opening))
    assert silent == []


def test_no_file_names_a_package_index() -> None:
    assert places(PACKAGE_INDEX) == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert places(MACHINE_PATH) == []


def test_nothing_is_left_marked_as_unfinished() -> None:
    assert places(UNFINISHED) == []


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (PACKAGE_INDEX, "pip install --index" + "-url=there"),
        (PACKAGE_INDEX, "see https" + "://mirror.example.org/simple/"),
        (MACHINE_PATH, "cd /" + "home/me/relaymesh"),
        (MACHINE_PATH, 'Path("/' + 'work")'),
        (UNFINISHED, "# TO" + "DO: later"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], line: str) -> None:
    assert pattern.search(line)


@pytest.mark.parametrize("line", ["GET /v1/work/7", "src/work/queue.py", "~/work", "/optional", "/roots-of"])
def test_a_path_that_is_no_machine_s_is_left_alone(line: str) -> None:
    assert not MACHINE_PATH.search(line)


def test_no_pattern_repeats_a_group_possessively() -> None:
    """Python before 3.11.5 matches too much with `(…)*+` (python/cpython#106052), but not with `(?>(…)*)`."""
    assert POSSESSIVE_GROUP.search(r"(?:ab?c)*+")
    assert POSSESSIVE_GROUP.search(r"(?:ab?c){1,3}+")
    assert not POSSESSIVE_GROUP.search(r"(?>(?:[ab]++)*)")
    written = {
        f"{shown(path)}: {node.value!r}"
        for path in source_files()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("re.")
        for node in ast.walk(node)
        if isinstance(node, ast.Constant) and POSSESSIVE_GROUP.search(str(node.value))
    }
    assert written == set()


def test_no_file_was_left_behind_by_accident() -> None:
    """A test, or a command tried by hand, that writes where it runs leaves such names and empty files."""
    files = [path for path in project_files() if path.name not in MAY_BE_EMPTY]
    assert [shown(path) for path in files if not PLAIN_NAME.fullmatch(path.name)] == []
    assert [shown(path) for path in files if path.stat().st_size == 0 and "golden" not in path.parts] == []
