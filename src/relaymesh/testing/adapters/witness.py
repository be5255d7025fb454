"""What the suite sees for itself: processes by the agent's ledger, memory and files of this process.

It shares no code with `relaymesh.agents`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

__all__ = ["Witness", "supported"]

KIB = 1024


def supported() -> bool:
    """Whether this system has the process table that a witness reads."""
    return Path("/proc/self/stat").exists()


class Witness:
    """Watches one case."""

    def __init__(self, folder: Path) -> None:
        self.ledger = folder / "ledger"
        self._files = _open_files()
        _reset_peak()
        self._before_kib = _status_kib("VmHWM")

    def noted(self) -> list[tuple[int, int]]:
        """Every process of the agent that wrote itself down: pid and start time."""
        try:
            lines = self.ledger.read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(int(pid), int(started)) for pid, started in (line.split() for line in lines)]

    def alive(self) -> list[int]:
        """Those that still run."""
        return [pid for pid, started in self.noted() if _state(pid, started) not in {"", "Z", "X"}]

    def zombies(self) -> list[int]:
        """Children of this process that have ended and were not reaped."""
        mine = str(os.getpid())
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                fields = _stat(int(entry))
                if fields and fields[0] == "Z" and fields[1] == mine:
                    found.append(int(entry))
        return found

    def kill_all(self) -> None:
        """End what an adapter left, so that the next case begins clean."""
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue

    def grown_mib(self) -> float:
        """By how much the peak of memory of this process has grown since the case began."""
        return (_status_kib("VmHWM") - self._before_kib) / KIB

    def opened_files(self) -> int:
        """How many more files are open than when the case began."""
        return _open_files() - self._files

    def arguments(self) -> bytes:
        """The command lines and environments with which the agent's processes were started."""
        found = b""
        for kind in ("cmdlines", "environs"):
            path = self.ledger.with_name(f"{self.ledger.name}.{kind}")
            if path.exists():
                found += path.read_bytes()
        return found


def folder_mib(folder: Path) -> float:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / (1 << 20)


def _state(pid: int, started: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields and fields[19] == str(started) else ""


def _stat(pid: int) -> list[str]:
    """The fields after the name; none if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _status_kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    return 0


def _reset_peak() -> None:
    """Set the peak of memory to what is used now. Where that fails, growth is seen above the old peak."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
