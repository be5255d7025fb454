"""Where a mesh lives: a URL, a directory or memory, and the default.

Without a path: `RELAYMESH_URL`, else `RELAYMESH_HOME`, else a folder at home.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from relaymesh.client.discovery import Find
from relaymesh.client.settings import RemoteSettings, Transport
from relaymesh.errors import InvalidSettings
from relaymesh.kernel.bounds import one_of, plain_text, shown
from relaymesh.node.settings import Durability, MeshSettings, directory

Settings = MeshSettings | RemoteSettings
URL_SCHEMES = ("http://", "https://")


@dataclass(frozen=True, kw_only=True)
class RemoteLocation:
    """A remote node."""

    url: str
    token: str | None
    transport: Transport
    settings: RemoteSettings
    find: Find | None = None
    """Returns the node's current address, if it was found by its directory."""


@dataclass(frozen=True, kw_only=True)
class LocalLocation:
    """A directory that this process opens, or memory (no path).

    `plain`: no argument needs an embedded mesh, so a node that already runs on the directory may be used in
    its place.
    """

    path: Path | None
    settings: MeshSettings
    plain: bool


def location_of(
    path: str | os.PathLike[str] | None,
    *,
    durability: Durability | None,
    settings: Settings | None,
    token: str | None,
    transport: Transport | None,
) -> RemoteLocation | LocalLocation:
    """The location that the arguments of a mesh name. Raises for settings that do not fit it."""
    _check_kinds(durability, settings, token, transport)
    embedded = durability is not None or isinstance(settings, MeshSettings)
    in_memory = "memory" in (durability, getattr(settings, "durability", None))
    given = os.environ.get("RELAYMESH_URL") if path is None else directory(path, "path")
    if given and given.startswith(URL_SCHEMES) and not (path is None and in_memory):
        if embedded:
            raise InvalidSettings(
                f"durability and MeshSettings are for a directory, and {given} is a remote mesh",
                hint="its node has them: see relaymesh serve; RemoteSettings are for this end",
            )
        remote = settings if isinstance(settings, RemoteSettings) else RemoteSettings()
        token = token or os.environ.get("RELAYMESH_TOKEN") or None
        return RemoteLocation(
            url=given.rstrip("/"), token=token, transport=transport or "websocket", settings=remote
        )
    if token is not None or transport is not None or isinstance(settings, RemoteSettings):
        raise InvalidSettings(
            "token, transport and RemoteSettings are for a remote mesh, and this is a directory",
            hint="pass a URL (http://host:port), or set RELAYMESH_URL",
        )
    chosen = settings_of(settings, durability)
    if chosen.durability == "memory":
        if path is not None:
            raise InvalidSettings(
                f"a mesh in memory keeps nothing, and {given} is a place to keep it",
                hint="leave out the path, or durability='memory'",
            )
        return LocalLocation(path=None, settings=chosen, plain=False)
    location = data_directory(path)
    if os.path.isfile(location):  # noqa: PTH113 - `Path.is_file` raises for a name that is too long
        raise InvalidSettings(
            f"{location} is a file, and a mesh needs a directory",
            hint="name a directory: the mesh keeps a journal and a database in it",
        )
    return LocalLocation(path=location, settings=chosen, plain=not embedded)


def _check_kinds(durability: Any, settings: Any, token: Any, transport: Any) -> None:
    """Check the types of the arguments, each on its own."""
    if durability is not None:
        one_of(durability, "durability", get_args(Durability), InvalidSettings)
    if transport is not None:
        one_of(transport, "transport", get_args(Transport), InvalidSettings)
    if token is not None:
        plain_text(token, "token", InvalidSettings)
    if settings is not None and not isinstance(settings, (MeshSettings, RemoteSettings)):
        raise InvalidSettings(f"settings must be MeshSettings or RemoteSettings, not {shown(settings)}")


def data_directory(path: str | os.PathLike[str] | None) -> Path:
    """The directory that is meant, for code that needs one. Raises for a URL."""
    location = os.environ.get("RELAYMESH_URL") if path is None else directory(path, "path")
    if location and location.startswith(URL_SCHEMES):
        raise InvalidSettings(
            f"{location} is a remote mesh, and this needs a directory",
            hint="unset RELAYMESH_URL, or pass a directory",
        )
    if location:
        return Path(location).expanduser()
    home = os.environ.get("RELAYMESH_HOME")
    return Path(home).expanduser() if home else Path.home() / ".relaymesh"


def settings_of(settings: MeshSettings | None, durability: Durability | None) -> MeshSettings:
    if settings is not None and not isinstance(settings, MeshSettings):
        raise InvalidSettings(f"settings must be MeshSettings, not {shown(settings)}")
    if settings is None:
        return MeshSettings(durability="synced" if durability is None else durability)
    if durability is not None and durability != settings.durability:
        raise InvalidSettings(
            f"durability is {durability!r} and settings.durability is {settings.durability!r}",
            hint="give it once",
        )
    return settings
