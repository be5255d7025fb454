"""Whatever is put into a bus: nothing outside is read or written, nothing hangs, the bus goes on."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relaymesh.errors import DirectoryError, DirectoryInUse
from relaymesh.gateways.filebus import FileBus
from tests.gateways.filebus.station import Station, names, station

SECRET = "the secret outside"
META = '{"to": "planner"}'
PAYLOAD = '"hello"'


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.json"
    path.write_text(json.dumps(SECRET))
    path.chmod(0o600)
    return path


@pytest.fixture(autouse=True)
def _the_bus_goes_on_and_nothing_leaked(bus: Station, secret: Path) -> Iterator[None]:
    """After every case: the secret is as it was and went nowhere, and an ordinary send arrives."""
    yield
    bus.send("after", "planner", "still here")
    bus.turn()
    receipt = bus.receipt("after")
    assert receipt is not None
    got = [delivery.content for delivery in bus.mesh.agent("planner").receive_many(100, timeout=0)]
    assert "still here" in got
    assert SECRET not in json.dumps(got)
    assert json.loads(secret.read_text()) == SECRET
    for path in (bus.path / "dead").iterdir():
        assert not path.is_symlink()
        if path.is_file() and path.stat().st_nlink == 1:
            with path.open("rb") as file:
                assert SECRET.encode() not in file.read(1 << 20)


def refused(bus: Station, stem: str, *words: str, code: str = "INVALID_MESSAGE") -> None:
    bus.turn()
    reason = bus.reason(stem)
    assert reason is not None, f"{stem} is not dead: {list((bus.path / 'dead').iterdir())}"
    assert reason["code"] == code
    for word in words:
        assert word in reason["message"]
    assert bus.receipt(stem) is None
    assert not os.path.lexists(bus.path / f"meta/{stem}.meta.json")


def test_a_meta_that_is_a_link_is_not_followed(bus: Station, secret: Path) -> None:
    bus.write("payload/x.payload.json", PAYLOAD)
    (bus.path / "meta/x.meta.json").symlink_to(secret)
    refused(bus, "x", "symbolic link")


def test_a_payload_that_is_a_link_is_not_followed(bus: Station, secret: Path) -> None:
    (bus.path / "payload/x.payload.json").symlink_to(secret)
    bus.write("meta/x.meta.json", META)
    refused(bus, "x", "symbolic link")


def test_a_payload_with_a_second_name_is_not_read(bus: Station, secret: Path) -> None:
    (bus.path / "payload/x.payload.json").hardlink_to(secret)
    bus.write("meta/x.meta.json", META)
    refused(bus, "x", "2 names")


def test_a_meta_with_a_second_name_is_not_read(bus: Station, secret: Path) -> None:
    bus.write("payload/x.payload.json", PAYLOAD)
    (bus.path / "meta/x.meta.json").hardlink_to(secret)
    refused(bus, "x", "2 names")


def test_a_pipe_does_not_make_the_bus_wait(bus: Station) -> None:
    os.mkfifo(bus.path / "meta/x.meta.json")
    refused(bus, "x", "pipe")
    os.mkfifo(bus.path / "payload/y.payload.json")
    bus.write("meta/y.meta.json", META)
    refused(bus, "y", "pipe")


def test_a_socket_is_refused(bus: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bus.path / "meta")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("x.meta.json")  # a relative name: the address is at most 108 bytes long
        refused(bus, "x", "socket")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_device_is_refused(bus: Station) -> None:
    try:
        os.mknod(bus.path / "payload/x.payload.json", 0o020600, os.makedev(1, 5))  # /dev/zero
    except PermissionError:
        pytest.skip("devices cannot be made here")
    bus.write("meta/x.meta.json", META)
    refused(bus, "x", "device")


def test_a_directory_in_place_of_a_meta_is_moved_away(bus: Station) -> None:
    (bus.path / "meta/x.meta.json").mkdir()
    (bus.path / "meta/x.meta.json/inside").write_text("x")
    refused(bus, "x", "directory")


def test_a_directory_in_place_of_a_payload_is_moved_away(bus: Station) -> None:
    (bus.path / "payload/x.payload.json").mkdir()
    bus.write("meta/x.meta.json", META)
    refused(bus, "x", "directory")


@pytest.mark.parametrize(
    "meta",
    [
        "",
        "{",
        '{"to": "planner"',
        "null",
        "[1]",
        '"to"',
        "\x00",
        '{"to": "planner", "to": "coder"}',
        '{"to": NaN}',
        '{"to": "planner", "content": 1}',
        '{"a":' * 100 + "1" + "}" * 100,
        "[" * 30_000,
    ],
)
def test_a_meta_that_does_not_parse_is_dead_once_nobody_can_still_be_writing_it(
    bus: Station, meta: str
) -> None:
    bus.write("payload/x.payload.json", PAYLOAD)
    bus.write("meta/x.meta.json", meta)
    bus.turn()
    assert bus.reason("x") is None, "it may be half-written"
    bus.later = 3
    refused(bus, "x")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "recipient"),
        ({"to": "planner", "topic": "a.b"}, "recipient"),
        ({"to": "../planner"}, "../planner"),
        ({"to": "a/b/c"}, "a/b/c"),
        ({"to": ""}, "to"),
        ({"to": 7}, "to"),
        ({"topic": 7}, "topic"),
        ({"to": "planner", "priority": 9}, "priority"),
        ({"to": "planner", "type": "ack"}, "ack"),
        ({"to": "planner", "type": "no_such_type"}, "no_such_type"),
        ({"to": "planner", "id": "x" * 129}, "id"),
        ({"to": "planner", "metadata": {"ttl": -1}}, "ttl"),
        ({"to": "planner", "metadata": []}, "metadata"),
        ({"to": "planner", "metadata": {"replyTo": "no/such/name"}}, "replyTo"),
    ],
)
def test_a_meta_that_makes_no_message_is_dead_with_the_field_named(
    bus: Station, fields: dict[str, object], word: str
) -> None:
    bus.write("payload/x.payload.json", PAYLOAD)
    bus.write("meta/x.meta.json", json.dumps(fields))
    refused(bus, "x", word)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"\xff\xfe", b'"\\ud800"', b"NaN", b"1e999", b'{"a":1,"a":2}', b"[" * 70 + b"]" * 70],
)
def test_a_payload_that_is_no_sound_json_is_dead(bus: Station, payload: bytes) -> None:
    bus.write("payload/x.payload.json", payload)
    bus.write("meta/x.meta.json", META)
    refused(bus, "x")


def test_a_meta_beyond_its_limit_is_not_read(bus: Station) -> None:
    bus.write("payload/x.payload.json", PAYLOAD)
    bus.write("meta/x.meta.json", '{"to": "planner", "x": "' + "x" * 70_000 + '"}')
    refused(bus, "x", "65536", code="PAYLOAD_TOO_LARGE")


def test_a_payload_beyond_its_limit_is_not_read(bus: Station) -> None:
    path = bus.write("payload/x.payload.json", b"")
    os.truncate(path, 1 << 40)  # a terabyte of nothing
    bus.write("meta/x.meta.json", META)
    refused(bus, "x", str(1 << 40), code="PAYLOAD_TOO_LARGE")


def test_a_meta_without_its_payload_waits_and_then_is_dead(bus: Station) -> None:
    bus.write("meta/x.meta.json", META)
    bus.turn()
    bus.later = 50
    bus.turn()
    assert bus.reason("x") is None
    bus.later = 70
    refused(bus, "x", "missing")


def test_a_payload_written_after_its_meta_is_waited_for(bus: Station) -> None:
    meta = bus.write("meta/x.meta.json", META)
    os.utime(meta, ns=(1, meta.stat().st_mtime_ns - 1_000_000_000))
    bus.write("payload/x.payload.json", "12")  # valid already, and still growing
    bus.turn()
    assert bus.receipt("x") is None
    bus.write("payload/x.payload.json", "123")
    bus.turn()
    assert bus.receipt("x") is None
    bus.later = 3
    bus.turn()
    assert bus.mesh.agent("planner").receive(timeout=0).content == 123


def test_a_meta_under_another_name_is_not_looked_at(bus: Station) -> None:
    bus.write("payload/x.payload.json", PAYLOAD)
    for name in (".x.meta.json", "x.meta.json.tmp", "x.meta.json~", "x.json"):
        bus.write(f"meta/{name}", META)
    bus.later = 100
    bus.turn()
    assert bus.mesh.stats().mailboxes["default/planner"].accepted == 0
    assert len(names(bus.path / "meta")) == 4


@pytest.mark.parametrize("bits", [0o602, 0o622, 0o666, 0o777])
def test_a_file_that_everybody_may_write_is_not_read(bus: Station, bits: int) -> None:
    bus.write("payload/x.payload.json", PAYLOAD).chmod(bits)
    bus.write("meta/x.meta.json", META)
    refused(bus, "x", "every user")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_read(bus: Station) -> None:
    os.chown(bus.write("payload/x.payload.json", PAYLOAD), 12345, -1)
    bus.write("meta/x.meta.json", META)
    refused(bus, "x", "user 12345")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_a_user_who_was_named_is_read(tmp_path: Path) -> None:
    with station(tmp_path / "named", owners=frozenset({12345})) as bus:
        os.chown(bus.write("payload/x.payload.json", PAYLOAD), 12345, -1)
        bus.write("meta/x.meta.json", '{"to": "coder"}')
        bus.turn()
        assert bus.receipt("x") is not None


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_dead(bus: Station) -> None:
    bus.write("payload/x.payload.json", PAYLOAD).chmod(0)
    bus.write("meta/x.meta.json", META)
    refused(bus, "x", "cannot be read")
    (bus.path / "dead/x.payload.json").chmod(0o600)  # for the look behind every case


@pytest.mark.parametrize(
    "stem",
    [
        "-rf",
        "a b",
        "a~0.1.1",
        "x" * 200,
        "é",
        "a\nb",
        "$(id)",
        "*",
        "a\\b",
        "~",
        "a;b",
        b"\xff\xfe".decode("utf-8", "surrogateescape"),
    ],
)
def test_a_name_that_is_none_is_replaced(bus: Station, stem: str) -> None:
    bus.write(f"meta/{stem}.meta.json", META)
    bus.turn()
    [name] = [name for name in names(bus.path / "dead") if name.endswith(".reason.json")]
    assert name.startswith("invalid-")
    words = bus.json(f"dead/{name}")
    assert words is not None
    assert words["code"] == "INVALID_MESSAGE"
    assert names(bus.path / "meta") == []


@pytest.mark.parametrize("name", ["inbox", "payload", "meta", "done", "dead", "processing", ".gateway"])
def test_a_directory_swapped_for_a_link_stops_the_next_start(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with station(tmp_path / "other") as bus:
        (bus.path / name).rename(tmp_path / "taken-away")
        (bus.path / name).symlink_to(outside)
        bus.die()
        with pytest.raises((DirectoryError, FileNotFoundError)):
            bus.open()
        (bus.path / name).unlink()
        (tmp_path / "taken-away").rename(bus.path / name)
        bus.open()
    assert names(outside) == []


def test_a_directory_swapped_for_a_link_under_a_running_gateway_changes_nothing_outside(
    bus: Station, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "normal").mkdir(parents=True)
    real = bus.path / "inbox"
    real.rename(bus.path / "moved")
    real.symlink_to(outside)
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    assert names(outside / "normal") == []
    assert names(bus.path / "moved/normal") == ["m-1~0.1.1.meta.json"]
    real.unlink()
    (bus.path / "moved").rename(real)


def test_a_worker_folder_that_is_a_link_is_not_entered(bus: Station, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    [stem] = bus.inbox()
    (bus.path / f"inbox/normal/{stem}.meta.json").rename(outside / f"{stem}.meta.json")
    (bus.path / "processing/w1").symlink_to(outside)
    bus.turn(4)
    assert names(outside) == [f"{stem}.meta.json"]
    bus.pass_time(130)
    assert "processing/w1" in bus.bus.notices.found


def test_a_link_in_done_acks_nothing(bus: Station, secret: Path) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    claim = bus.take()
    (bus.path / f"done/{claim.stem}.meta.json").symlink_to(secret)
    bus.turn(4)
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 0


def test_a_forged_name_settles_nobody_elses_delivery(bus: Station) -> None:
    """Tokens are no secrets: a lease of an agent that is not of this bus is not to be settled here."""
    bus.mesh.agent("boss").send("planner", "work", id="other")
    held = bus.mesh.agent("planner").receive(timeout=0)
    token = held._token
    name = f"x~0.{token >> 40}.{token & ((1 << 40) - 1)}.meta.json"
    bus.write(f"done/{name}", json.dumps({"to": "default/planner", "delivery": {"sequence": held.sequence}}))
    bus.write(f"dead/{name}", "{}")
    (bus.path / "processing/w1").mkdir()
    bus.write(f"processing/w1/{name}", "{}")
    bus.turn(4)
    assert bus.mesh.stats().mailboxes["default/planner"].leased == 1
    held.ack()


@pytest.mark.parametrize("text", ["", "{", "null", '{"to": 7}', "\xff" * 10, '{"delivery": {"leaseMs": -5}}'])
def test_a_claim_whose_meta_was_destroyed_still_settles(bus: Station, text: str) -> None:
    bus.mesh.agent("planner").send("coder", "work", id="m-1")
    bus.turn()
    claim = bus.take()
    bus.turn(1)
    claim.path.write_text(text)
    bus.die()
    bus.open()
    bus.turn()
    claim.done()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 1


def test_a_file_system_that_says_no_is_reported_and_the_rest_goes_on(bus: Station) -> None:
    (bus.path / "dead/x.reason.json").mkdir()
    bus.write("meta/x.meta.json", "{")
    bus.later = 3
    bus.turn()
    assert "dead/" in bus.bus.notices.found["meta/x.meta.json"]


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("/"), Path.mkdir])
def test_a_day_that_cannot_be_filed_under_does_not_keep_acks_back(
    bus: Station, make: Callable[[Path], None]
) -> None:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    make(bus.path / "done" / today)
    for number in range(2):
        bus.mesh.agent("planner").send("coder", number, id=f"m-{number}")
    bus.turn()
    for _ in range(2):
        bus.take().done()
    bus.turn()
    assert bus.mesh.stats().mailboxes["default/coder"].acked == 2


def test_a_reason_that_cannot_be_written_does_not_keep_others_back(bus: Station) -> None:
    for number in range(2):
        bus.mesh.agent("planner").send("coder", number, id=f"m-{number}")
    bus.turn()
    first, second = bus.take(), bus.take()
    (bus.path / f"dead/{first.stem}.reason.json").mkdir()
    first.dead(code="invalid")
    second.dead(code="invalid")
    bus.turn()
    assert bus.reason(second.stem) is not None
    assert len(bus.mesh.dead_letters()) == 2


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o777), lambda path: (path / "meta").chmod(0o777)])
def test_a_directory_that_everybody_may_write_is_not_served(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    with station(tmp_path / "open") as bus:
        bus.die()
        spoil(bus.path)
        with pytest.raises(DirectoryError, match="every user"):
            bus.open()
        bus.path.chmod(0o700)
        (bus.path / "meta").chmod(0o700)
        bus.open()


def test_two_gateways_do_not_serve_one_directory(bus: Station) -> None:
    with pytest.raises(DirectoryInUse):
        FileBus(bus.mesh._session, bus.path, ["coder"])


def test_deliveries_named_by_hostile_ids_stay_inside(bus: Station) -> None:
    planner = bus.mesh.agent("planner")
    ids = [
        "../../etc/passwd",
        "/etc/passwd",
        "a/../../b",
        "..",
        ".",
        "-rf",
        "x" * 128,
        "é" * 100,
        "a\\b",
        "%2e%2e",
    ]
    for each in ids:
        planner.send("coder", each, id=each)
    bus.turn()
    found = {}
    while (claim := bus.claim()) is not None:
        found[claim.id] = claim.content
        assert len(os.fsencode(claim.path.name)) <= 200
        claim.done()
    assert found == {each: each for each in ids}
    assert not (Path(tempfile.gettempdir()) / "etc").exists()
