"""The address file: there while the node runs, ignored when it is left over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relaymesh import Mesh
from relaymesh.server.address import (
    NodeAddress,
    alive,
    read_address,
    remove_address,
    server_folder,
    write_address,
)

HERE = NodeAddress(
    url="http://127.0.0.1:7717", pid=os.getpid(), started="2026-01-01T00:00:00.000Z", protocol="1.1.0"
)


def test_the_address_of_the_process_that_holds_the_directory_is_read(tmp_path: Path) -> None:
    with Mesh(tmp_path):
        write_address(tmp_path, HERE)
        assert read_address(tmp_path) == HERE


def test_the_address_of_a_process_that_is_gone_is_ignored(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True, timeout=60
    )
    pid = int(ended.stdout)
    assert not alive(pid)
    with Mesh(tmp_path):
        write_address(tmp_path, NodeAddress(url=HERE.url, pid=pid, started=HERE.started, protocol="1.1.0"))
        assert read_address(tmp_path) is None


def test_the_address_of_a_living_process_that_does_not_hold_the_directory_is_ignored(tmp_path: Path) -> None:
    """Its number may have been given to another process since."""
    with Mesh(tmp_path):
        write_address(tmp_path, NodeAddress(url=HERE.url, pid=1, started=HERE.started, protocol="1.1.0"))
        assert read_address(tmp_path) is None


def test_where_processes_cannot_be_asked_the_lock_is(tmp_path: Path) -> None:
    with Mesh(tmp_path):
        write_address(tmp_path, HERE)
        assert read_address(tmp_path, system="nt") == HERE
    assert (tmp_path / "lock").exists()
    assert read_address(tmp_path, system="nt") is None
    with Mesh(tmp_path):  # asking took the lock for a moment only
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 5}', '{"url": "http://x"}'])
def test_a_file_that_says_nothing_is_ignored(tmp_path: Path, text: str) -> None:
    server_folder(tmp_path).mkdir()
    (server_folder(tmp_path) / "address.json").write_text(text)
    assert read_address(tmp_path) is None
    remove_address(tmp_path, os.getpid())


def test_no_directory_has_no_address(tmp_path: Path) -> None:
    assert read_address(tmp_path / "nowhere") is None


def test_a_stop_removes_its_own_address_and_never_a_successors(tmp_path: Path) -> None:
    write_address(tmp_path, HERE)
    remove_address(tmp_path, HERE.pid + 1)
    assert (server_folder(tmp_path) / "address.json").exists()
    remove_address(tmp_path, HERE.pid)
    assert not (server_folder(tmp_path) / "address.json").exists()


@pytest.mark.skipif(os.name == "nt", reason="POSIX modes")
def test_the_address_is_for_its_user_alone(tmp_path: Path) -> None:
    write_address(tmp_path, HERE)
    assert server_folder(tmp_path).stat().st_mode & 0o777 == 0o700
    assert (server_folder(tmp_path) / "address.json").stat().st_mode & 0o777 == 0o600
