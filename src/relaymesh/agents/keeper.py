"""The keeper: the process of `relaymesh up`. It keeps node and supervisor running, and prints what happens.

    keeper ── node         relaymesh serve, on the data directory
       └───── supervisor   a remote holder, with the agents below it

If the node dies, it is started again on the same port; the supervisor keeps its leases and its runs. If the
supervisor dies, all processes below it are ended, and the next supervisor abandons their steps. If the keeper
dies, both see the end of their stdin and stop in order. The keeper imports little, because it runs as long as
the team: `python -m relaymesh.agents.keeper`.
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any

from relaymesh.agents.kept_process import KeptProcess
from relaymesh.agents.strays import become_subreaper, end_strays
from relaymesh.agents.team_log import TeamLog

__all__ = ["EXIT_IN_USE", "Keeper", "main"]

EXIT_IN_USE = 5
NODE_SHARE = 0.3
"""The part of the time for a stop that is reserved for the node, which stops after the agents."""
DIRECTORY_WAIT_S = 20.0
"""How long the node of an earlier keeper may take to release the directory."""
START_AGAIN_S = 5.0
LOCK_WAIT_S = 0.5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Keeper:
    """One run of `relaymesh up`, from the lock to the end of the last process."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._root = Path(given["directory"]) / "supervisor"
        self._log = TeamLog(self._root / "logs" / "team.log", json_lines=given["json"])
        self._kept_settings = self._root / "settings.json"
        """What a node that starts again goes on with while a file of settings is wrong."""
        self._url = ""
        self._port = given["port"]
        self._node = KeptProcess("node", self._node_command)
        self._supervisor = KeptProcess("supervisor", self._supervisor_command)
        self._selector = selectors.DefaultSelector()
        self._began = time.monotonic()
        self._stop_at: float | None = None
        """When a stop is over, at the latest; None: no stop was asked for."""
        self._hurried = False
        self._node_told = False
        self._gave_up: int | None = None
        self._last_words = ""

    # -- the commands

    def _node_command(self) -> list[str]:
        share = f"{self._given['graceful_timeout'] * NODE_SHARE:.3f}"
        return [
            *(
                sys.executable,
                "-m",
                "relaymesh.cli.main",
                "serve",
                "--json",
                "--dir",
                self._given["directory"],
            ),
            *("--port", str(self._port), "--graceful-timeout", share, "--until-stdin-ends"),
            *("--config", self._given["file"], "--kept-settings", str(self._kept_settings)),
        ]

    def _supervisor_command(self) -> list[str]:
        words = {name: self._given[name] for name in ("directory", "file", "graceful_timeout")}
        return [sys.executable, "-m", "relaymesh.agents.supervise", json.dumps(words)]

    # -- the run

    def run(self) -> int:
        """Returns the exit code."""
        become_subreaper()
        heard, wake = os.pipe()
        for end in (heard, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (*STOP_SIGNALS, signal.SIGHUP, signal.SIGCHLD):
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGCHLD:
                signal.signal(number, lambda *_: None)
        self._selector.register(heard, selectors.EVENT_READ)
        self._kept_settings.unlink(missing_ok=True)  # the first node starts on what is there now, or not
        self._node.start_at = self._began
        while not self._is_over():
            self._start_due()
            for key, _ in self._selector.select(self._pause()):
                if key.fd == heard:
                    for byte in os.read(heard, 4096):
                        self._take_signal(signal.Signals(byte))
                else:
                    self._hear(key.fd)
            self._reap()
            if self._stop_at is not None:
                self._go_on_stopping(time.monotonic())
        end_strays((), self._reap)
        (self._root / "keeper.json").unlink(missing_ok=True)
        self._tell("down", "everything has stopped" if self._gave_up is None else "gave up")
        self._answer(ready=False)
        return self._gave_up or 0

    def _is_over(self) -> bool:
        stopping = self._stop_at is not None or self._gave_up is not None
        return stopping and self._node.pid is None and self._supervisor.pid is None

    def _pause(self) -> float | None:
        moments = [each.start_at for each in (self._node, self._supervisor) if each.start_at is not None]
        if self._stop_at is not None:
            return 0.05
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _start_due(self) -> None:
        if self._stop_at is not None or self._gave_up is not None:
            return
        for child in (self._node, self._supervisor):
            now = time.monotonic()
            if child.start_at is not None and child.start_at <= now:
                try:
                    child.start(now)
                except OSError as error:  # no memory, no process, no descriptor left
                    child.start_at = now + START_AGAIN_S
                    self._tell(f"{child.name}.failed", f"the {child.name} cannot be started: {error}")
                    continue
                for descriptor in child.files:
                    self._selector.register(descriptor, selectors.EVENT_READ, child)
                self._note()

    def _reap(self) -> None:
        """Reap all children that ended, also adopted ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in (self._node, self._supervisor):
                if child.pid == pid:
                    self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: KeptProcess, code: int) -> None:
        for descriptor in child.files:
            self._selector.unregister(descriptor)
        child.ended(code, time.monotonic(), lambda stream, line: self._take_line(child, stream, line))
        strays = 0
        if child is self._supervisor:
            strays = end_strays([pid for pid in (self._node.pid,) if pid is not None], self._reap)
        if self._stop_at is not None:
            child.start_at = None
        elif child is self._node and not self._url:
            self._judge_first_start(code)
        else:
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            also = f"; {strays} processes below it were ended" if strays else ""
            self._tell(
                f"{child.name}.ended", f"the {child.name} {how} and is started again{also}", exit_code=code
            )
        self._note()

    def _judge_first_start(self, code: int) -> None:
        """The node ended before it served: another process may have the directory, for a moment or for
        long."""
        if code == EXIT_IN_USE and time.monotonic() - self._began < DIRECTORY_WAIT_S:
            if self._node.starts == 1:
                self._tell("node.waits", "waiting until another process releases the data directory")
            return
        self._node.start_at = None
        self._gave_up = code if code > 0 else 1
        self._tell(
            "node.failed", self._last_words or f"the node did not start: exit code {code}", exit_code=code
        )

    # -- what is heard

    def _take_signal(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP and not self._given["terminal"]:
            self._supervisor.signal(signal.SIGHUP)  # read the file again
        elif number in STOP_SIGNALS or number == signal.SIGHUP:
            self._stop(number.name)

    def _hear(self, descriptor: int) -> None:
        child: KeptProcess = self._selector.get_key(descriptor).data
        if not child.read(descriptor, lambda stream, line: self._take_line(child, stream, line)):
            self._selector.unregister(descriptor)
            child.closed(descriptor)

    def _take_line(self, child: KeptProcess, stream: str, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        said: dict[str, Any] = found if isinstance(found, dict) else {"note": text}
        if child is self._node:
            self._take_node_line(stream, said)
        elif "event" in said:
            self._log.put(said)
            if said["event"] == "ready":
                self._answer(ready=True)
        else:
            self._tell("supervisor.note", f"supervisor: {said.get('note', text)}")

    def _take_node_line(self, stream: str, said: dict[str, Any]) -> None:
        if stream == "stdout" and "url" in said:
            first, self._url = not self._url, said["url"]
            self._port = int(self._url.rpartition(":")[2])
            self._tell("node.started", f"the node serves {said['directory']} at {self._url}", url=self._url)
            if first and self._stop_at is None:
                self._supervisor.start_at = time.monotonic()
            self._note()
        elif "message" in said:
            self._last_words = f"{said['message']} ({said.get('hint', '')})"
            if self._url:
                self._tell("node.error", f"node: {self._last_words}")
        else:
            self._tell("node.note", f"node: {said.get('note', '')}")

    # -- the stop

    def _stop(self, name: str) -> None:
        now = time.monotonic()
        if self._stop_at is not None:
            self._hurried = True
            return
        timeout = self._given["graceful_timeout"]
        self._stop_at = now + timeout
        self._tell("stopping", f"{name}: stopping within {timeout:g} s")
        for child in (self._node, self._supervisor):
            child.start_at = None
        self._supervisor.signal(signal.SIGTERM)

    def _go_on_stopping(self, now: float) -> None:
        """First stop the supervisor, which gives its leases back; then the node, which syncs its journal."""
        assert self._stop_at is not None
        agents_until = self._stop_at - self._given["graceful_timeout"] * NODE_SHARE
        if self._supervisor.pid is not None:
            if self._hurried or now > agents_until:
                self._supervisor.signal(signal.SIGKILL)
        elif self._node.pid is not None:
            if not self._node_told:
                self._node_told = True
                self._node.signal(signal.SIGTERM)
            elif self._hurried or now > self._stop_at:
                self._node.signal(signal.SIGKILL)

    # -- what is told

    def _tell(self, event: str, text: str, **fields: Any) -> None:
        self._log.put({"event": event, **fields, "text": text})

    def _note(self) -> None:
        """What `relaymesh ps` shows of the keeper."""
        said = {
            "pid": os.getpid(),
            "url": self._url,
            "file": self._given["file"],
            "graceful_timeout": self._given["graceful_timeout"],
            "node": {"pid": self._node.pid, "starts": self._node.starts},
            "supervisor": {"pid": self._supervisor.pid, "starts": self._supervisor.starts},
        }
        draft = self._root / ".keeper.json"
        draft.write_text(json.dumps(said), encoding="utf-8")
        draft.replace(self._root / "keeper.json")

    def _answer(self, *, ready: bool) -> None:
        """Tell the command that started this keeper in the background."""
        descriptor, self._given["answer_to"] = self._given.get("answer_to"), None
        if descriptor is not None:
            words = {"ready": ready, "url": self._url, "problem": self._last_words}
            try:
                os.write(descriptor, json.dumps(words).encode())
            except OSError:
                pass
            os.close(descriptor)


def _is_taken(lock: int) -> bool:
    """Take the lock. A command that looks whether a keeper runs holds it for a moment."""
    until = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)


def main() -> int:
    given = json.loads(sys.argv[1])
    os.umask(0o077)
    root = Path(given["directory"]) / "supervisor"
    lock = os.open(root / "keeper.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _is_taken(lock):
        sys.stderr.write(f"error: relaymesh up already runs on {given['directory']}\n")
        return EXIT_IN_USE
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return Keeper(given).run()


if __name__ == "__main__":
    sys.exit(main())
