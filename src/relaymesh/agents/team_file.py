"""Reads and checks `relaymesh.toml`. All problems are reported, each in one line that names the table and
the key."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from relaymesh.agents.declarations import KINDS, AgentDeclaration, MeshDeclaration, Team
from relaymesh.errors import InvalidSettings, MeshError, NotFound
from relaymesh.kernel.address import agent_address, name_of
from relaymesh.kernel.bounds import TEXT_LENGTH_MAX, one_of, real, shown, text, whole
from relaymesh.server.security.likeness import is_reserved
from relaymesh.wire.near import Names
from relaymesh.wire.parameters import checked, parameters_of
from relaymesh.wire.types import ROLES

__all__ = ["DIRECTORY", "FILE_NAME", "mesh_directory", "read_sound", "read_team", "team_of"]

FILE_NAME = "relaymesh.toml"
DIRECTORY = ".relaymesh"
FILE_BYTES_MAX = 1_048_576
AGENTS_MAX = 1_000
LIST_MAX = 1_000
ARGUMENT_LENGTH_MAX = 65_536
CONCURRENCY_MAX = 1_000
PROCESSES_MAX = 256
SECONDS_MAX = 31_536_000.0
GRACEFUL_S_MAX = 3_600.0
PATH_LENGTH_MAX = 4_096

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REFERENCE = re.compile(r"(?:env:[A-Za-z_][A-Za-z0-9_]*|file:[^\0]+)", re.DOTALL)
_SPAN = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)", re.ASCII)
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_CALLABLE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

Check = Callable[[Any, str], Any]


def read_team(path: Path) -> Team:
    """The team of a file. Raises `InvalidSettings` with all problems, or `NotFound`."""
    return read_sound(path)[0]


def read_sound(path: Path) -> tuple[Team, bytes]:
    """The team of a file, and the bytes that declare it. Raises as `read_team`."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFound(f"there is no {path}", hint="relaymesh init writes one") from None
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror or error}") from None
    team, problems = team_of(data, path)
    if team is None:
        raise InvalidSettings("; ".join(problems), hint=f"correct {path.name}; nothing was changed")
    return team, data


def mesh_directory(path: Path) -> Path | None:
    """The data directory that a file names, for commands that need nothing else of it.

    None: there is no file.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidSettings(
            f"{path} cannot be read: {_line(error)}", hint="correct it, or name the data directory with --dir"
        ) from None
    table = document.get("mesh", {})
    named = table.get("directory", DIRECTORY) if isinstance(table, dict) else DIRECTORY
    return path.parent.absolute() / Path(_path(named, "[mesh] directory")).expanduser()


def team_of(data: bytes, path: Path) -> tuple[Team | None, list[str]]:
    """The team that the bytes of a file declare, or the problems in them, one line each."""
    if len(data) > FILE_BYTES_MAX:
        return None, [f"{path.name}: has more than {FILE_BYTES_MAX} bytes"]
    try:
        document = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        return None, [f"{path.name}: is not UTF-8 at byte {error.start}"]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return None, [f"{path.name}: {_line(error)}"]
    reading = _Reading(path.name)
    agents = reading.agents(document)
    mesh = reading.mesh(document, path)
    reading.settings(document)
    reading.no_others(document, "", Names(_TABLES))
    if reading.problems:
        return None, reading.problems
    return Team(path=path, mesh=mesh, agents=agents), []


class _Reading:
    """One file, and the problems found so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[str] = []

    def mesh(self, document: Mapping[str, Any], path: Path) -> MeshDeclaration:
        found = self._checked(document.get("mesh", {}), "mesh", _MESH)
        directory = path.parent / Path(found.pop("directory", DIRECTORY)).expanduser()
        return MeshDeclaration(directory=directory, **found)

    def agents(self, document: Mapping[str, Any]) -> tuple[AgentDeclaration, ...]:
        tables = document.get("agents", {})
        if not isinstance(tables, dict):
            self._wrong("agents", "must be tables, written [agents.NAME]")
            return ()
        if len(tables) > AGENTS_MAX:
            self._wrong("agents", f"has {len(tables)} agents; {AGENTS_MAX} are allowed")
            return ()
        return tuple(self._agent(name, table) for name, table in tables.items())

    def settings(self, document: Mapping[str, Any]) -> None:
        """The settings of the node. The node reads them itself, but a wrong setting is found here too."""
        table = document.get("settings", {})
        try:
            if not isinstance(table, dict):
                raise InvalidSettings(f"must be a table, not {shown(table)}")
            parameters_of(checked(table, "settings"))
        except MeshError as error:
            self._wrong("settings", _told(error))

    def _agent(self, name: str, table: Any) -> AgentDeclaration:
        where = f"agents.{name if name.isprintable() else ascii(name)}"
        try:
            if "/" in name:
                raise InvalidSettings("its name has a slash: it belongs to the default namespace")
            if is_reserved(name_of(agent_address(name))):
                raise InvalidSettings("its name is reserved: the mesh itself speaks under it")
        except MeshError as error:
            self._wrong(where, error.message)
        found = self._checked(table, where, _AGENT)
        kind = found.get("kind", "script")
        for key, kinds in _KINDS_OF.items():
            if key in found and kind not in kinds:
                self._wrong(where, f"{key} is for kind {' and '.join(kinds)}, and this is a {kind}")
            elif kind in kinds and key in _NEEDED and not found.get(key) and _is_absent(table, key):
                self._wrong(where, f"{key} is missing: {_NEEDED[key]}")
        count = found.get("processes", 1)
        if (steps := found.setdefault("concurrency", count)) < count:
            self._wrong(where, f"processes is {count} and concurrency {steps}: a process would get no work")
        if found.get("backoff_max", math.inf) < found.get("backoff_min", 0):
            self._wrong(where, "backoff_max is below backoff_min")
        return AgentDeclaration(name=name, **found)

    def _checked(self, table: Any, where: str, checks: Mapping[str, Check]) -> dict[str, Any]:
        """The valid values of a table."""
        if not isinstance(table, dict):
            self._wrong(where, f"must be a table, not {shown(table)}")
            return {}
        self.no_others(table, where, Names(checks), checks)
        found: dict[str, Any] = {}
        for key, check in checks.items():
            if key in table:
                try:
                    found[key] = check(table[key], key)
                except MeshError as error:
                    self._wrong(where, _told(error))
        return found

    def no_others(
        self, table: Mapping[str, Any], where: str, names: Names, known: Mapping[str, Any] | None = None
    ) -> None:
        for key in table:
            if key not in (_TABLES if known is None else known):
                near = names.nearest(key)
                meant = f"; {near!r} was probably meant" if near else ""
                self._wrong(where, f"has no key {shown(key)}{meant}")

    def _wrong(self, where: str, problem: str) -> None:
        table = f" [{where}]" if where else ""
        self.problems.append(" ".join(f"{self.name}:{table} {problem}".split()))


# -- one value each


def _word(value: Any, what: str) -> str:
    return text(value, what, 0, TEXT_LENGTH_MAX, InvalidSettings)


def _path(value: Any, what: str) -> str:
    path = text(value, what, 1, PATH_LENGTH_MAX, InvalidSettings)
    if "\0" in path:
        raise InvalidSettings(f"{what} has a NUL")
    return path


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > LIST_MAX:
        raise InvalidSettings(f"{what} must be a list of at most {LIST_MAX} texts, not {shown(value)}")
    for each in value:
        if "\0" in text(each, f"each item of {what}", 0, ARGUMENT_LENGTH_MAX, InvalidSettings):
            raise InvalidSettings(f"an item of {what} has a NUL")
    return tuple(value)


def _words(value: Any, what: str) -> tuple[str, ...]:
    return tuple(
        text(each, f"each of {what}", 1, TEXT_LENGTH_MAX, InvalidSettings) for each in _texts(value, what)
    )


def _command(value: Any, what: str) -> tuple[str, ...]:
    if isinstance(value, str):
        raise InvalidSettings(
            f"{what} must be a list of arguments, not a line for a shell",
            hint='write ["python3", "agents/greeter.py"]',
        )
    return _texts(value, what)


def _callable(value: Any, what: str) -> str:
    found = text(value, what, 1, TEXT_LENGTH_MAX, InvalidSettings)
    if not _CALLABLE.fullmatch(found):
        raise InvalidSettings(f"{what} is {shown(found)}; it must be written as module:name")
    return found


def _kind(value: Any, what: str) -> str:
    return one_of(value, what, KINDS, InvalidSettings)


def _role(value: Any, what: str) -> str:
    return one_of(value, what, ROLES, InvalidSettings)


def _unbounded(value: Any, what: str) -> str:
    return one_of(value, what, ("refuse", "run"), InvalidSettings)


def _variable(name: Any, what: str) -> str:
    if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
        raise InvalidSettings(f"{what} names {shown(name)}, which is no variable")
    if name.startswith("RELAYMESH_"):
        raise InvalidSettings(f"{what} names {name}: RELAYMESH_ variables are set for the agent")
    return name


def _names(value: Any, what: str) -> tuple[str, ...]:
    return tuple(_variable(each, what) for each in _texts(value, what))


def _variables(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > LIST_MAX:
        raise InvalidSettings(f'{what} must be a table of texts, as {{ NAME = "value" }}')
    found = {}
    for name, given in value.items():
        plain = text(given, f"{what}.{_variable(name, what)}", 0, ARGUMENT_LENGTH_MAX, InvalidSettings)
        if "\0" in plain:
            raise InvalidSettings(f"{what}.{name} has a NUL")
        found[name] = plain
    return found


def _references(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > LIST_MAX:
        raise InvalidSettings(f'{what} must be a table of references, as {{ KEY = "env:MY_KEY" }}')
    for name, reference in value.items():
        if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            # The value is not shown: it may be the secret itself.
            raise InvalidSettings(
                f"{what}.{_variable(name, what)} is not a reference",
                hint="write env:NAME or file:PATH, not the secret",
            )
        _variable(name, what)
    return dict(value)


def _seconds(least: float, most: float) -> Check:
    def check(value: Any, what: str) -> float:
        if isinstance(value, str):
            span = _SPAN.fullmatch(value)
            if span is None:
                raise InvalidSettings(f"{what} is {shown(value)}, which is no time", hint='write 90 or "10m"')
            value = int(span[1]) * _UNIT_S[span[2]]
        return real(value, f"{what} (in seconds)", least, most, InvalidSettings)

    return check


def _whole(least: int, most: int) -> Check:
    return lambda value, what: whole(value, what, least, most, InvalidSettings)


_MESH: dict[str, Check] = {
    "directory": _path,
    "port": _whole(0, 65_535),
    "graceful_timeout": _seconds(0.1, GRACEFUL_S_MAX),
}
_AGENT: dict[str, Check] = {
    "kind": _kind,
    "command": _command,
    "run": _callable,
    "role": _role,
    "capabilities": _words,
    "concurrency": _whole(1, CONCURRENCY_MAX),
    "processes": _whole(1, PROCESSES_MAX),
    "time_limit": _seconds(0.001, SECONDS_MAX),
    "silence_limit": _seconds(0.001, SECONDS_MAX),
    "grace": _seconds(0.0, GRACEFUL_S_MAX),
    "workspace": _path,
    "environment": _variables,
    "pass_environment": _names,
    "secrets": _references,
    "user": _word,
    "processes_max": _whole(1, 1_000_000),
    "processes_unbounded": _unbounded,
    "result_bytes_max": _whole(1, 1 << 40),
    "log_bytes_max": _whole(0, 1 << 40),
    "backoff_min": _seconds(0.0, SECONDS_MAX),
    "backoff_max": _seconds(0.0, SECONDS_MAX),
}
_PROCESS = tuple(kind for kind in KINDS if kind != "person")
_KINDS_OF: dict[str, tuple[str, ...]] = {
    **{key: _PROCESS for key in _AGENT if key not in {"kind", "role", "capabilities", "command", "run"}},
    "command": ("script", "worker"),
    "processes": ("worker", "python"),
    "run": ("python",),
}
"""The kinds of agents for which a key is allowed; keys that are not here are allowed for all."""
_NEEDED = {
    "command": 'as ["python3", "agents/greeter.py"]',
    "run": "as module:name",
}


def _is_absent(table: Any, key: str) -> bool:
    """Whether the key is missing or an empty list, and no problem with it was reported yet."""
    return isinstance(table, dict) and table.get(key, []) == []


_TABLES = ("mesh", "settings", "agents")


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _told(error: MeshError) -> str:
    """Its words, and its own hint if it has one."""
    own = error.hint and error.hint != error.default_hint
    return f"{error.message}; {error.hint}" if own else error.message
