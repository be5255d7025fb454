"""Settings of the node: what is in force, reading the file again, and what was read before."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from relaymesh.wire.api.base import Answer, Request, Time
from relaymesh.wire.settings import HISTORY_MAX, Cause, Origin


class SettingBody(Answer, frozen=True):
    """One setting."""

    name: Annotated[str, Meta(description="As in relaymesh-settings.json.", examples=["max_attempts"])]
    value: Annotated[bool | int | float, Meta(description="What is in force.")]
    default: bool | int | float
    origin: Annotated[Origin, Meta(description="Where the value comes from; the last of these wins.")]
    active: Annotated[bool, Meta(description="Whether this version does anything with it.")]
    effect: str


class SettingsAnswer(Answer, frozen=True):
    """All settings of the node."""

    settings: list[SettingBody]
    file: Annotated[str, Meta(description="Its name in the data directory; empty: there is none.")]
    loaded_at: Annotated[Time, Meta(description="When the values were read, by the wall clock.")]
    problem: Annotated[
        str,
        Meta(description="Why the file is not in force. Only an admin of every namespace sees it."),
    ]


class SettingsLoadBody(Answer, frozen=True):
    """One time that the settings were read. It has no values."""

    at: Time
    cause: Annotated[Cause, Meta(description="start, reload (it was asked for) or changed (another file).")]
    changed_fields: list[str]
    refused: Annotated[bool, Meta(description="Nothing changed: changedFields names what is wrong.")]
    by: Annotated[str, Meta(description="The id of the token that asked.")]


class SettingsHistoryQuery(Request, frozen=True):
    """The query of `GET /v1/settings/history`."""

    limit: Annotated[int, Meta(ge=1, le=HISTORY_MAX)] = HISTORY_MAX


class SettingsHistoryAnswer(Answer, frozen=True):
    """The newest loads first."""

    loads: list[SettingsLoadBody]
