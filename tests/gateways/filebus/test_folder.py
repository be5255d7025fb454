"""One folder, two ways to hold it: by a descriptor, and by its path where the system has none."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from relaymesh.errors import DirectoryError, InvalidEnvelope, PayloadTooLarge
from relaymesh.gateways.filebus.folder import HAS_DIRECTORY_FDS, Folder
from relaymesh.gateways.filebus.tree import Tree, make_tree

OURS = frozenset({os.geteuid()}) if hasattr(os, "geteuid") else frozenset()


@pytest.fixture(params=[True, False], ids=["descriptor", "path"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    if request.param and not HAS_DIRECTORY_FDS:
        pytest.skip("this system has no descriptors of directories")
    (tmp_path / "root").mkdir()
    return Folder.root(tmp_path / "root", descriptors=request.param)


def test_what_is_written_is_read_and_listed(root: Folder) -> None:
    root.write("a.json", b"one")
    root.write("a.json", b"two")
    read = root.read("a.json", 10, OURS)
    assert read is not None
    assert read[0] == b"two"
    assert root.files() == ("a.json",)


def test_what_is_not_there_is_none(root: Folder) -> None:
    assert root.read("a.json", 10, OURS) is None
    assert root.stat("a.json") is None
    assert root.remove("a.json") is False
    assert root.move("a.json", root, "b.json") is False


def test_a_rename_goes_to_one_of_two(root: Folder) -> None:
    one, two = root.folder("one", make=True), root.folder("two", make=True)
    root.write("a", b"")
    assert [root.move("a", one), root.move("a", two)] == [True, False]
    assert (one.files(), two.files()) == (("a",), ())
    one.close()
    two.close()


@pytest.mark.parametrize("name", ["", ".", "..", "/etc/passwd", "a/b", "../a", "a\0b"])
def test_no_name_leads_out_of_the_folder(root: Folder, name: str) -> None:
    for call in (
        lambda: root.read(name, 10, OURS),
        lambda: root.stat(name),
        lambda: root.remove(name),
        lambda: root.folder(name),
        lambda: root.move(name, root, "a"),
        lambda: root.move("a", root, name),
        lambda: root.remove_folder(name),
    ):
        with pytest.raises(ValueError, match="plain name"):
            call()


def test_no_link_is_followed(root: Folder, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    (root.path / "file").symlink_to(tmp_path / "outside/secret")
    (root.path / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidEnvelope, match="symbolic link"):
        root.read("file", 100, OURS)
    with pytest.raises(DirectoryError, match="link"):
        root.folder("folder")
    with pytest.raises(DirectoryError, match="link"):
        root.folder("folder", make=True)
    assert root.files() == ()
    assert root.others() == ("file", "folder")
    root.write("file", b"mine")
    assert (tmp_path / "outside/secret").read_text() == "secret"


def test_writing_goes_through_no_link_that_waits_under_the_temporary_name(
    root: Folder, tmp_path: Path
) -> None:
    (root.path / ".new-a").symlink_to(tmp_path / "outside")
    root.write("a", b"data")
    assert not (tmp_path / "outside").exists()


def test_a_file_swapped_while_it_is_opened_is_noticed(
    root: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where O_NOFOLLOW does not exist, this comparison is all there is."""
    root.write("a", b"mine")
    (tmp_path / "secret").write_text("secret")
    real_open = os.open

    def swapping_open(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        (root.path / "a").unlink()
        (root.path / "a").symlink_to(tmp_path / "secret")
        return real_open(path, flags & ~os.O_NOFOLLOW, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping_open)
    with pytest.raises(InvalidEnvelope, match="replaced"):
        root.read("a", 100, OURS)


def test_a_file_that_grows_while_it_is_read_is_cut_off_at_the_limit(
    root: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.write("a", b"x" * 10)
    real_read = os.read

    def growing_read(descriptor: int, size: int) -> bytes:
        with (root.path / "a").open("ab") as file:
            file.write(b"y" * 100)
        return real_read(descriptor, size)

    monkeypatch.setattr(os, "read", growing_read)
    with pytest.raises(PayloadTooLarge, match="grew"):
        root.read("a", 50, OURS)


def test_a_listing_is_read_again_only_when_the_directory_changed(root: Folder) -> None:
    root.write("a", b"")
    old = time.time() - 100
    os.utime(root.path, (old, old))
    first = root.files()
    assert (root.files() is first) == (root.fd is not None)
    root.write("b", b"")
    assert root.files() == ("a", "b")
    (root.path / "c").write_text("")  # within the same tick of the file system's clock, perhaps
    assert root.files() == ("a", "b", "c")


def test_a_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for descriptors in {HAS_DIRECTORY_FDS, False}:
        with pytest.raises(DirectoryError):
            Folder.root(tmp_path / "link", descriptors=descriptors)


def test_a_whole_tree_works_without_descriptors(tmp_path: Path) -> None:
    make_tree(tmp_path / "bus")
    tree = Tree(tmp_path / "bus", descriptors=False)
    tree.processing.folder("w1", make=True)
    assert list(tree.look_for_workers()) == ["w1"]
    tree.tiers["high"].write("x.meta.json", b"{}")
    assert tree.tiers["high"].move("x.meta.json", tree.workers["w1"])
    assert (tmp_path / "bus/processing/w1/x.meta.json").exists()
    tree.close()
