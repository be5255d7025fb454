"""Tuning: the current values of the settings of a node, where each comes from, and how they change. The
environment, flags and `relaymesh.toml` take precedence over the settings file. A wrong file changes nothing:
the earlier values stay, and the log says so once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from relaymesh.errors import InvalidSettings, MeshError
from relaymesh.journal import Disk
from relaymesh.node.letter_reports import write_whole
from relaymesh.node.settings import MeshSettings
from relaymesh.node.settings_file import (
    SETTINGS_FILE,
    Stamp,
    from_environment,
    read_settings,
    read_toml,
    stamp_of,
)
from relaymesh.node.sound_files import SoundFiles, keep, kept_in
from relaymesh.wire.parameters import DEFAULTS, PARAMETERS, Parameters, Value, checked, parameters_of
from relaymesh.wire.settings import (
    HISTORY_MAX,
    Cause,
    Origin,
    ReloadSettings,
    SettingsHistory,
    SettingShown,
    SettingsLoad,
    SettingsShown,
    ShowSettings,
)

__all__ = ["OF_SETTINGS", "POLL_MS", "Given", "Resolved", "Tuning", "read_history", "resolve", "with_code"]

POLL_MS = 5_000
"""How often a running node checks whether the file has changed."""
HISTORY_FILE = "settings-history.json"
HISTORY_BYTES_MAX = 1_048_576
CHANGED_MAX = 100
"""Names that one load keeps."""

OfSettings = ShowSettings | ReloadSettings | SettingsHistory
OF_SETTINGS = (ShowSettings, ReloadSettings, SettingsHistory)
PLAIN = MeshSettings()

log = logging.getLogger("relaymesh.node")
alert = logging.getLogger("relaymesh.alert")


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What takes precedence over the settings file: variables, flags by the names of the settings, a
    relaymesh.toml."""

    environment: Mapping[str, str] = {}
    flags: Mapping[str, Value] = {}
    toml: Path | None = None
    kept: Path | None = None
    """Where sound settings are kept for the next start; None: the node does not start on a wrong file."""


def with_code(given: Given, settings: MeshSettings) -> Given:
    """What a program set by `MeshSettings` counts as a flag; what has the default there is not set."""
    flags: dict[str, Value] = {}
    if settings.payload_bytes_max != PLAIN.payload_bytes_max:
        flags["payload_max_bytes"] = settings.payload_bytes_max
    if settings.done_retention_days != PLAIN.done_retention_days:
        flags["done_retention_days"] = settings.done_retention_days
    return msgspec.structs.replace(given, flags={**flags, **given.flags})


class Resolved(msgspec.Struct, frozen=True):
    """Values that were checked together, and the sources of those that are not defaults."""

    values: Parameters
    origins: dict[str, Origin]

    def shown(self) -> list[SettingShown]:
        return [
            SettingShown(
                row.name,
                getattr(self.values, row.field),
                row.default,
                self.origins.get(row.name, "default"),
                row.active,
                row.effect,
            )
            for row in PARAMETERS
        ]


def resolve(given: Given, file: Path | None) -> Resolved:
    """Read everything and check it whole. Raises `InvalidSettings`; nothing has changed then."""
    return _resolved(given, _read(given, file))


def _read(given: Given, file: Path | None) -> SoundFiles:
    return SoundFiles(
        {} if file is None else read_settings(file), {} if given.toml is None else read_toml(given.toml)
    )


def _resolved(given: Given, files: SoundFiles) -> Resolved:
    layers: list[tuple[Origin, Mapping[str, Value]]] = [
        ("file", files.file),
        ("toml", files.toml),
        ("flag", checked(given.flags, "an option")),
        ("environment", from_environment(given.environment)),
    ]
    values: dict[str, Value] = {}
    origins: dict[str, Origin] = {}
    for origin, found in layers:
        values.update(found)
        origins.update(dict.fromkeys(found, origin))
    return Resolved(parameters_of(values), origins)


class Tuning:
    """The settings of one node. Thread-safe: `values` is replaced as a whole.

    `root`: the data directory; None: there is no file. `now_ms`: the wall clock.
    """

    def __init__(self, given: Given, root: Path | None, now_ms: Callable[[], int]) -> None:
        """Read the settings. Raises `InvalidSettings` if they are wrong and no sound ones are kept."""
        self._given = given
        self._file = None if root is None else root / SETTINGS_FILE
        self._disk: Disk | None = None
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._seen = self._stamps()
        self._problem = ""
        refused: list[SettingsLoad] = []
        try:
            self._resolved = self._read_all()
        except InvalidSettings as error:
            self._resolved = self._resolved_before(error)
            self._problem = error.message
            refused = [SettingsLoad(now_ms(), "start", _keys(error), True)]
        self._next_poll = 0
        self._history: list[SettingsLoad] = []
        self._loaded_at = now_ms()
        self.on_load: list[Callable[[SettingsLoad], None]] = []
        """Called with each load, also a refused one, in the thread that read the file."""
        self.at_start = [SettingsLoad(self._loaded_at, "start", _changed(DEFAULTS, self.values)), *refused]
        """The load of the start; and if a file was wrong then, its refusal."""

    def begin_history(self, disk: Disk | None) -> None:
        """Continue the history of a data directory that this process has open. None: keep it in memory."""
        self._disk = disk
        if disk is not None:
            self._history = read_history(disk)
        for load in self.at_start:
            if load.changed_fields or load.refused:
                self._remember(load)

    @property
    def values(self) -> Parameters:
        """The current values."""
        return self._resolved.values

    def answer(self, request: OfSettings) -> Any:
        """Execute a request to the node."""
        match request:
            case ShowSettings():
                return self.shown()
            case ReloadSettings():
                return self.load("reload", request.by)
            case SettingsHistory():
                return self.history(request.limit)

    def shown(self) -> SettingsShown:
        file = "" if self._file is None else str(self._file)
        return SettingsShown(self._resolved.shown(), file, self._loaded_at, self._problem)

    def history(self, limit: int) -> list[SettingsLoad]:
        """The newest first."""
        with self._lock:
            return self._history[::-1][: max(0, limit)]

    def poll(self, now: int) -> SettingsLoad | None:
        """Read the file if it has changed; at most every `POLL_MS`. It never raises."""
        if now < self._next_poll:
            return None
        self._next_poll = now + POLL_MS
        if self._stamps() == self._seen:
            return None
        try:
            return self.load("changed")
        except InvalidSettings:
            return None  # `load` has reported it

    def load(self, cause: Cause, by: str = "") -> SettingsLoad:
        """Read the file now and apply it. Raises `InvalidSettings`: nothing changed."""
        with self._lock:
            self._seen = self._stamps()  # before the read: what is written meanwhile is seen at the next poll
            try:
                resolved = self._read_all()
            except InvalidSettings as error:
                self._refuse(error, cause, by)
                raise
            changed = _changed(self.values, resolved.values)
            self._resolved, self._problem, self._loaded_at = resolved, "", self._now_ms()
            load = SettingsLoad(self._loaded_at, cause, changed, by=by)
            if changed or cause == "reload":
                self._remember(load)
            self._tell(load)
        if changed:
            log.info("settings were loaded; changed: %s", ", ".join(changed))
        return load

    def _read_all(self) -> Resolved:
        """What the files say now, kept for the next start. Raises `InvalidSettings`."""
        files = _read(self._given, self._file)
        resolved = _resolved(self._given, files)
        if self._given.kept is not None:
            keep(self._given.kept, files)
        return resolved

    def _resolved_before(self, error: InvalidSettings) -> Resolved:
        """What was in force when the node ran last. Raises `error` if that is not known."""
        files = None if self._given.kept is None else kept_in(self._given.kept)
        if files is None:
            raise error
        try:
            resolved = _resolved(self._given, files)
        except InvalidSettings:
            raise error from None
        alert.error("the node goes on with the settings it had: %s (%s)", error.message, error.hint)
        return resolved

    def _refuse(self, error: InvalidSettings, cause: Cause, by: str) -> None:
        """Report a wrong file once, until it changes or a person asks."""
        again, self._problem = self._problem == error.message, error.message
        if again and cause == "changed":
            return
        alert.error("the settings are not changed: %s (%s)", error.message, error.hint)
        load = SettingsLoad(self._now_ms(), cause, _keys(error), True, by)
        self._remember(load)
        self._tell(load)

    def _tell(self, load: SettingsLoad) -> None:
        for tell in self.on_load:
            try:
                tell(load)
            except MeshError as error:  # the mesh closes, or its journal failed: the values are in force
                log.warning("settings were loaded, and not applied everywhere: %s", error)

    def _remember(self, load: SettingsLoad) -> None:
        self._history = [*self._history, load][-HISTORY_MAX:]
        if self._disk is None:
            return
        try:
            write_whole(self._disk, HISTORY_FILE, msgspec.json.encode(self._history) + b"\n")
        except OSError as error:
            log.warning("the history of the settings could not be written: %s", error)

    def _stamps(self) -> tuple[Stamp | None, Stamp | None]:
        toml = self._given.toml
        return (
            None if self._file is None else stamp_of(self._file),
            None if toml is None else stamp_of(toml),
        )


def read_history(disk: Disk) -> list[SettingsLoad]:
    """The loads that a data directory remembers, the oldest first. A damaged file counts as an empty one."""
    try:
        file = disk.open(HISTORY_FILE, write=False)
    except OSError:
        return []
    try:
        data = file.read_at(0, min(file.size(), HISTORY_BYTES_MAX))
        return msgspec.json.decode(data, type=list[SettingsLoad])[-HISTORY_MAX:]
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        log.warning("the history of the settings cannot be read, and begins anew: %s", error)
        return []
    finally:
        file.close()


def _keys(error: InvalidSettings) -> list[str]:
    """The settings that are wrong, as far as a history may hold them."""
    return [key[:80] for key in error.keys[:CHANGED_MAX]]


def _changed(before: Parameters, after: Parameters) -> list[str]:
    return [row.name for row in PARAMETERS if getattr(before, row.field) != getattr(after, row.field)]
