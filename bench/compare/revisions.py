"""The source of a revision, in a directory that nobody else writes to."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from bench.child import ROOT

WORKING_TREE = "."


class UnknownRevision(Exception):
    """A name is neither a directory with a `src/relaymesh` nor a revision that git knows."""


@dataclass(frozen=True, kw_only=True)
class Revision:
    """`source` is the directory that holds the package `relaymesh`."""

    name: str
    source: Path


def extract(name: str, place: Path) -> Revision:
    """Copy the source of a git revision, or of a directory such as `.`, to `place`."""
    tree = ROOT if name == WORKING_TREE else Path(name)
    if (tree / "src" / "relaymesh").is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(tree / "src", place / "src", ignore=ignored)
        shown = f"working tree at {_described('HEAD') or 'no commit'}" if tree == ROOT else name
    else:
        commit = _described(name)
        if commit is None:
            raise UnknownRevision(f"{name!r} is neither a revision of this repository nor a source directory")
        _archive(name, place)
        shown = name if name.startswith(commit) else f"{name} ({commit})"
    return Revision(name=shown, source=place / "src")


def _described(name: str) -> str | None:
    done = _git("rev-parse", "--verify", "--quiet", "--short", "--end-of-options", f"{name}^{{commit}}")
    return done.stdout.decode().strip() if done.returncode == 0 else None


def _archive(name: str, place: Path) -> None:
    done = _git("archive", "--format=tar", f"{name}^{{commit}}", "src/relaymesh")
    if done.returncode != 0:
        raise UnknownRevision(f"git archive {name}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(place, filter="data")
        else:  # Python 3.11.0 to 3.11.3
            archive.extractall(place)


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=False)
