"""What a disk holds at one moment: what is durable, and the changes that a power loss may take or leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relaymesh.testing.enumeration.recording import Call, FolderSynced, Named, Resized, Synced, Wrote

__all__ = ["Change", "Platter", "after"]

Change = Wrote | Resized


class Platter:
    """Follows a recording call by call.

    durable, names: synced bytes by file number, and synced names. changes, renames: what came since.
    lingering: names that a rename into another folder left behind until the old folder is synced too.
    """

    def __init__(self, files: Mapping[str, bytes], numbers: Mapping[str, int]) -> None:
        self.names = dict(numbers)
        self.durable = {number: files[name] for name, number in numbers.items()}
        self.changes: dict[int, list[Change]] = {}
        self.renames: list[Named] = []
        self.lingering: list[Named] = []

    def apply(self, call: Call) -> None:
        if isinstance(call, Wrote | Resized):
            self.changes.setdefault(call.file, []).append(call)
        elif isinstance(call, Synced):
            self.durable[call.file] = after(self.before(call.file), self.changes.pop(call.file, ()))
        elif isinstance(call, Named):
            self.renames.append(call)
        else:
            self._sync_folder(call)

    def before(self, file: int) -> bytes:
        return self.durable.get(file, b"")

    def _sync_folder(self, call: FolderSynced) -> None:
        self.lingering = [each for each in self.lingering if _folder(each.old) != call.folder]
        left: list[Named] = []
        for each in self.renames:
            folders = {_folder(name) for name in (each.old, each.new) if name is not None}
            if call.folder not in folders:
                left.append(each)
                continue
            rename(self.names, each)
            if len(folders) > 1 and call.folder != _folder(each.old):
                self.lingering.append(each)
        self.renames = left


def rename(names: dict[str, int], change: Named) -> None:
    if change.old is not None:
        names.pop(change.old, None)
    if change.new is not None:
        names[change.new] = change.file


def after(content: bytes, changes: Iterable[Change]) -> bytes:
    """The content with these changes made to it, in order."""
    for change in changes:
        if isinstance(change, Resized):
            content = content[: change.length] + bytes(max(0, change.length - len(content)))
        else:
            content = overlaid(content, change.offset, change.data)
    return content


def overlaid(content: bytes, offset: int, data: bytes) -> bytes:
    if len(content) < offset:
        content += bytes(offset - len(content))
    return content[:offset] + data + content[offset + len(data) :]


def _folder(name: str | None) -> str:
    return (name or "").rpartition("/")[0]
