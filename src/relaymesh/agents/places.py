"""The files of the supervisor: `<data directory>/supervisor`, readable by its owner only."""

from __future__ import annotations

import secrets
from pathlib import Path

from relaymesh.modes import make_folder, replace_file

__all__ = ["Places"]


class Places:
    """The files and folders of one data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root = directory / "supervisor"
        self.keeper_lock = self.root / "keeper.lock"
        """Held by `relaymesh up` for as long as it runs."""
        self.supervisor_lock = self.root / "supervisor.lock"
        self.sound_file = self.root / "relaymesh.toml"
        """The team's file as it was sound last."""
        self.keeper = self.root / "keeper.json"
        """What the keeper knows: process ids and how often it started them."""
        self.status = self.root / "status.json"
        """What the supervisor knows of its agents."""
        self.mark = self.root / "mark"
        """The beginning of the marks of all runs of this data directory."""
        self.records = self.root / "runs"
        """A file for each attempt under way."""
        self.output = self.root / "output"
        """A folder for each attempt, with what it wrote."""
        self.sessions = self.root / "sessions.json"
        """The sessions that a supervisor has with the node: a successor gives back what they hold."""
        self.orders = self.root / "orders"
        """Files that ask the supervisor for something."""
        self.tokens = self.root / "tokens"
        """The token of each agent, which its processes get in their environment."""
        self.logs = self.root / "logs"

    def make(self) -> None:
        for folder in (self.root, self.records, self.output, self.orders, self.tokens, self.logs):
            make_folder(folder)

    def log_of(self, agent: str) -> Path:
        """The log of an agent. Its name has no slash."""
        return self.logs / f"agent-{agent}.log"

    @property
    def team_log(self) -> Path:
        return self.logs / "team.log"

    def take_mark(self) -> str:
        """The mark of every process that runs for this data directory. It never changes."""
        try:
            found = self.mark.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            found = ""
        if len(found) != _MARK_LENGTH or not found.isalnum():
            found = secrets.token_hex(_MARK_LENGTH // 2)
            replace_file(self.mark, found.encode())
        return found


_MARK_LENGTH = 16
