"""Reliability settings for existing mailboxes: applied when a server starts. The settings of a mailbox are
durable, but do not say which of them came from a server's options. So `server/reliability.json` keeps all
values with which servers of this directory ran. A setting with one of these values, or with the built-in
default, follows the options of the next start; any other value was chosen for the mailbox, and stays.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.kernel.commands import OpenMailbox
from relaymesh.kernel.kernel import Kernel
from relaymesh.kernel.settings import MailboxSettings
from relaymesh.node.core import Core
from relaymesh.server.reliability import FIELDS, ReliabilityConfig
from relaymesh.server.security.secretfile import make_private_folder, write_private

FILE = "reliability.json"

log = logging.getLogger("relaymesh.server")

Values = dict[str, list[int | None]]


def apply_to_known(core: Core, folder: Path, config: ReliabilityConfig) -> int:
    """Change every known mailbox that does not follow the configuration yet. Returns how many. The values are
    recorded first, so that after a crash in the middle the next start knows them.
    """
    noted = _read(folder / FILE)
    wanted = config.mailbox_settings()
    values = {name: _with(noted.get(name, []), getattr(wanted, name)) for name in FIELDS}
    if values == noted:
        values = noted
    elif noted or wanted != MailboxSettings():
        make_private_folder(folder)
        write_private(folder / FILE, msgspec.json.encode(values))
    else:
        return 0  # no server of this directory ever had others than the defaults

    def look(kernel: Kernel) -> list[tuple[str, MailboxSettings]]:
        boxes = kernel.state.mailboxes.items()
        changed = [
            (address, box.settings, config.mailbox_settings(box.settings, values)) for address, box in boxes
        ]
        return [(address, new) for address, old, new in changed if old != new]

    known: list[tuple[str, MailboxSettings]] = core.read(look)
    for address, settings in known:
        core.submit(OpenMailbox(address, settings))
    if known:
        core.sync()
        log.info("reliability settings of %d mailboxes were changed", len(known))
    return len(known)


def _with(values: list[int | None], value: int | None) -> list[int | None]:
    return values if value in values else [*values, value]


def _read(path: Path) -> Values:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Values)
    except FileNotFoundError:
        return {}
    except msgspec.MsgspecError as error:
        raise InvalidSettings(
            f"{path} cannot be read: {error}", hint="move it away: mailboxes then keep the settings they have"
        ) from error
