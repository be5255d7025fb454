"""Requests about the settings of a node, and what they result in."""

from __future__ import annotations

from typing import Literal

import msgspec

from relaymesh.kernel.request import Request
from relaymesh.wire.parameters import Value

__all__ = [
    "HISTORY_MAX",
    "Cause",
    "Origin",
    "ReloadSettings",
    "SettingShown",
    "SettingsHistory",
    "SettingsLoad",
    "SettingsShown",
    "ShowSettings",
]

HISTORY_MAX = 200
"""Loads that a data directory remembers; the oldest go first."""

Origin = Literal["default", "file", "toml", "flag", "environment"]
"""Where a value comes from. Of several the last one of this list wins."""
Cause = Literal["start", "reload", "changed"]
"""Why the file was read: the node started, a caller asked, or the file was found to be another one."""


class SettingShown(msgspec.Struct, frozen=True):
    """One setting as it is in force."""

    name: str
    value: Value
    default: Value
    origin: Origin
    active: bool
    effect: str


class SettingsShown(msgspec.Struct, frozen=True):
    """All settings of a node. `problem`: why the file as it is now is not in force; empty: it is."""

    settings: list[SettingShown]
    file: str
    loaded_at: int = 0
    problem: str = ""


class SettingsLoad(msgspec.Struct, frozen=True):
    """One time that the settings were read: which of them changed, and never to what.

    `refused`: nothing changed; `changed_fields` then names the settings that are wrong, as far as they have
    names. At a start, `changed_fields` names what is not at its default. `by`: who asked.
    """

    at: int
    cause: Cause
    changed_fields: list[str]
    refused: bool = False
    by: str = ""


class ShowSettings(Request[SettingsShown]):
    """What is in force, and where it comes from."""


class ReloadSettings(Request[SettingsLoad]):
    """Read the file now. Raises `InvalidSettings` if it is wrong: then nothing changes."""

    by: str = ""


class SettingsHistory(Request[list[SettingsLoad]]):
    """The newest loads first, at most so many."""

    limit: int = HISTORY_MAX
