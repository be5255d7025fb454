"""The settings of a node over the network, and what a server does when they change."""

from __future__ import annotations

import asyncio
from pathlib import Path

from relaymesh.node.node import Node
from relaymesh.server.applied import apply_to_known
from relaymesh.server.reliability import config_of
from relaymesh.server.security.audit import AuditEvent, AuditLog
from relaymesh.server.security.principal import Principal
from relaymesh.server.served import Served
from relaymesh.wire.settings import ReloadSettings, SettingsHistory, SettingsLoad, SettingsShown, ShowSettings

LOADED = "settings.loaded"
REFUSED = "settings.refused"


async def show_settings(served: Served, principal: Principal) -> SettingsShown:
    """The current values. Only an admin sees the path of the directory and problems in it."""
    found = await served.session.execute(ShowSettings())
    return SettingsShown(
        found.settings,
        Path(found.file).name,
        found.loaded_at,
        found.problem if principal.everywhere else "",
    )


async def reload_settings(served: Served, principal: Principal) -> SettingsLoad:
    principal.require_everywhere()
    node, by = served.node, principal.token_id
    return await asyncio.to_thread(lambda: node.answer(ReloadSettings(by)))


async def history_of(served: Served, principal: Principal, limit: int) -> list[SettingsLoad]:
    principal.require_everywhere()
    return await served.session.execute(SettingsHistory(limit))


class Following:
    """Brings new settings to the parts of a server: mailboxes, agents, and the audit log."""

    def __init__(self, served: Served, folder: Path) -> None:
        self._served = served
        self._folder = folder
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        """Follow from now on, and have the loads of the start audited."""
        tuning = self._served.node.tuning
        tuning.on_load.append(self._loaded)
        for load in tuning.at_start:
            if load.changed_fields or load.refused:
                self._audit(load)

    def end(self) -> None:
        self._served.node.tuning.on_load.remove(self._loaded)

    def _loaded(self, load: SettingsLoad) -> None:
        """In the thread that read the file."""
        self._loop.call_soon_threadsafe(self._audit, load)
        if not load.refused:
            config = config_of(self._served.node.values())
            self._served.roster.follow(config)
            apply_to_known(self._served.node.core, self._folder, config)

    def _audit(self, load: SettingsLoad) -> None:
        audit: AuditLog = self._served.audit
        audit.append(
            AuditEvent(
                event=REFUSED if load.refused else LOADED,
                at=audit.now_ms(),
                token=load.by,
                detail=f"{load.cause}; changed_fields: {', '.join(load.changed_fields) or 'none'}",
            )
        )


def prepare_mailboxes(node: Node, folder: Path) -> None:
    """Before anything is served: mailboxes that are there follow the settings."""
    apply_to_known(node.core, folder, config_of(node.values()))
