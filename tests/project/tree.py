"""The project as its own tests see it: where it is, and which files belong to it."""

from __future__ import annotations

import os
import subprocess
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

_NOT_OURS = {"__pycache__", "build", "dist"}


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is, or is about to be, under version control."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0 and (ROOT / ".git").exists():
        found = [ROOT / os.fsdecode(name) for name in listing.stdout.split(b"\0") if name]
    else:  # unpacked from an archive
        found = [path for path in ROOT.rglob("*") if _ours(path.relative_to(ROOT))]
    return tuple(sorted(path for path in found if path.is_file()))


def text_files() -> dict[Path, str]:
    """The text of every project file that is text, by its path below the root."""
    texts = {}
    for path in project_files():
        data = path.read_bytes()
        if b"\0" in data:
            continue
        texts[path.relative_to(ROOT)] = data.decode("utf-8", errors="replace")
    return texts


def source_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def markdown_files() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".md"]


def version() -> str:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def _ours(path: Path) -> bool:
    return not any(part in _NOT_OURS or (part.startswith(".") and part != ".ci") for part in path.parts)
