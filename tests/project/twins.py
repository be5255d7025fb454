"""The twins of the SDK: what threads call, written from what an event loop awaits.

    python -m tests.project.twins     write them again

`AsyncAgent`, `AsyncDelivery` and the operations of `AsyncMesh` are written by hand, once. Each becomes the
class for threads by leaving out `async` and `await`. A line that ends with
`# twin: async only` has no place there. The files that are written are ordinary source: they have types,
docstrings and tracebacks of their own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.project.tree import ROOT

SDK = ROOT / "src/relaymesh/sdk"
TWINS = {
    "async_delivery.py": "delivery.py",
    "async_agent.py": "agent.py",
    "async_operations.py": "operations.py",
    "async_task.py": "task.py",
}

_WORDS = (
    (re.compile(r".*# twin: async only\n"), ""),
    (re.compile(r"\basync def "), "def "),
    (re.compile(r"\basync with\b"), "with"),
    (re.compile(r"an `with`"), "a `with`"),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\b__a(enter|exit)__"), r"__\1__"),
    (re.compile(r"\bAsync([A-Z]\w+)"), r"\1"),
    (re.compile(r"\basync_(agent|delivery|mesh|operations|pool|task)\b"), r"\1"),
    (re.compile(r" on an event loop\b"), ""),
)


def twin_of(source: Path) -> str:
    """The text of the twin."""
    text = source.read_text(encoding="utf-8")
    for pattern, word in _WORDS:
        text = pattern.sub(word, text)
    note = f"# Written by `make twins` from {source.name}: change that file.\n"
    head, quotes, rest = text.partition('"""\n\n')
    return _formatted(head + quotes + note + "\n" + rest)


def _formatted(text: str) -> str:
    for words in (["check", "--select", "I,UP034", "--fix", "-q"], ["format", "-q"]):
        command = [sys.executable, "-m", "ruff", *words, "--stdin-filename", "src/relaymesh/sdk/twin.py", "-"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60
        ).stdout
    return text


def main() -> None:
    for source, twin in TWINS.items():
        (SDK / twin).write_text(twin_of(SDK / source), encoding="utf-8")


if __name__ == "__main__":
    main()
