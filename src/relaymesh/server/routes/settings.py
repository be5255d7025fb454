"""Settings: the current values, reading the file again, and the history of loads."""

from __future__ import annotations

import msgspec

from relaymesh.kernel.moment import iso
from relaymesh.server.exchange import Exchange
from relaymesh.server.tuning import history_of, reload_settings, show_settings
from relaymesh.wire.api import (
    SettingBody,
    SettingsAnswer,
    SettingsHistoryAnswer,
    SettingsHistoryQuery,
    SettingsLoadBody,
)
from relaymesh.wire.settings import SettingsLoad


async def show(exchange: Exchange) -> SettingsAnswer:
    """Every setting of the node: its value, where that comes from, and what it does.

    Any credential may ask: programs that run handlers follow some of them.
    """
    found = await show_settings(exchange.served, exchange.principal)
    return SettingsAnswer(
        settings=[msgspec.convert(each, SettingBody, from_attributes=True) for each in found.settings],
        file=found.file,
        loaded_at=iso(found.loaded_at),
        problem=found.problem,
    )


async def reload(exchange: Exchange) -> SettingsLoadBody:
    """Read the settings file now. A wrong file is refused as a whole, and nothing changes."""
    await exchange.body()
    return _body(await reload_settings(exchange.served, exchange.principal))


async def history(exchange: Exchange) -> SettingsHistoryAnswer:
    """When the settings were read, and which of them changed, without their values."""
    query = exchange.query_into(SettingsHistoryQuery, {"limit": "limit"})
    loads = await history_of(exchange.served, exchange.principal, query.limit)
    return SettingsHistoryAnswer(loads=[_body(load) for load in loads])


def _body(load: SettingsLoad) -> SettingsLoadBody:
    return SettingsLoadBody(
        at=iso(load.at),
        cause=load.cause,
        changed_fields=load.changed_fields,
        refused=load.refused,
        by=load.by,
    )
