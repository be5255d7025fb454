"""Names, origins, proxies and exposure: who is believed about what."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from relaymesh.errors import InvalidSettings
from relaymesh.server.security.accounts import ACCOUNTS_MAX, Account, Accounts
from relaymesh.server.security.hosts import Hosts, is_loopback, own_names
from relaymesh.server.security.limits import DESCRIPTORS_RESERVED, SecuritySettings
from relaymesh.server.security.proxies import Proxies
from relaymesh.server.security.tls import check_exposure, tls_context
from relaymesh.server.settings import ServerSettings


@pytest.mark.parametrize("value", ["localhost:7", "127.0.0.1:7", "[::1]:7", "LOCALHOST:7", "localhost.:7"])
def test_the_loopback_names_are_known_on_the_right_port(value: str) -> None:
    assert Hosts().knows_host(value, "http", 7)
    assert not Hosts().knows_host(value, "http", 8)


@pytest.mark.parametrize(
    "value",
    ["", "evil", "localhost:7:7", "localhost:x", "localhost:", "user@localhost:7", "[::1:7", "a b", "127.1:7",
     "localhost:7/", "localhost:7#", "2130706433:7", "0x7f.1:7", "[::ffff:7f00:1]:7", "localhost:000007"],
)  # fmt: skip
def test_nothing_else_is(value: str) -> None:
    assert not Hosts().knows_host(value, "http", 7)


def test_a_configured_name_is_known_on_this_port_or_on_the_one_it_names() -> None:
    hosts = Hosts(("mesh.example", "proxy.example:443"))
    assert hosts.knows_host("mesh.example:7", "http", 7)
    assert not hosts.knows_host("mesh.example", "http", 7)
    assert hosts.knows_host("proxy.example", "https", 7)
    assert not hosts.knows_host("proxy.example:444", "https", 7)


def test_a_default_port_need_not_be_named() -> None:
    assert Hosts().knows_host("localhost", "http", 80)
    assert Hosts().knows_host("localhost", "wss", 443)
    assert not Hosts().knows_host("localhost", "https", 80)


@pytest.mark.parametrize("origin", ["http://localhost:7", "http://127.0.0.1:7", "http://[::1]:7"])
def test_our_own_origin_is_known(origin: str) -> None:
    assert Hosts().knows_origin(origin, "http", 7)
    assert Hosts().knows_origin(origin, "ws", 7)


@pytest.mark.parametrize(
    "origin",
    ["null", "", "localhost:7", "https://localhost:7", "http://localhost:8", "http://localhost:7/",
     "http://localhost:7.evil.example", "http://evil.example:7", "file://", "http://user@localhost:7"],
)  # fmt: skip
def test_no_other_origin_is(origin: str) -> None:
    assert not Hosts().knows_origin(origin, "http", 7)


def test_a_forwarded_address_counts_from_a_configured_proxy_alone() -> None:
    assert Proxies().remote_address("127.0.0.1", "1.2.3.4") == "127.0.0.1"
    proxies = Proxies(("127.0.0.1", "10.0.0.0/8"))
    assert proxies.remote_address("127.0.0.1", "1.2.3.4") == "1.2.3.4"
    assert proxies.remote_address("127.0.0.1", "9.9.9.9, 1.2.3.4, 10.1.1.1") == "1.2.3.4"
    assert proxies.remote_address("127.0.0.1", "1.2.3.4, nonsense") == "127.0.0.1"
    assert proxies.remote_address("192.168.1.1", "1.2.3.4") == "192.168.1.1"
    assert proxies.remote_address("127.0.0.1", None) == "127.0.0.1"
    assert proxies.remote_address("127.0.0.1", "10.1.1.1, 10.1.1.2") == "10.1.1.1"


def test_a_forwarded_scheme_counts_from_a_configured_proxy_alone() -> None:
    assert Proxies().scheme("127.0.0.1", "http", "https") == "http"
    assert Proxies(("127.0.0.1",)).scheme("127.0.0.1", "http", "https") == "https"
    assert Proxies(("127.0.0.1",)).scheme("127.0.0.1", "http", "gopher") == "http"


@pytest.mark.parametrize(
    "wrong",
    [
        {"proxies": ("everywhere",)},
        {"allow_hosts": ("a b",)},
        {"write_rate": -1},
        {"connections_max": 0},
        {"header_seconds": 0},
        {"write_burst": 0.5},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidSettings):
        SecuritySettings(**wrong)  # type: ignore[arg-type]


def test_connections_leave_descriptors_for_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1024))
    assert SecuritySettings().connections_allowed() == 256 - DESCRIPTORS_RESERVED
    assert SecuritySettings(connections_max=10).connections_allowed() == 10


def account(rate: float, burst: float, now: float = 0.0) -> Account:
    return Account("a", SecuritySettings(write_rate=rate, write_burst=burst), now)


def test_a_rate_refills_and_says_when_to_come_back() -> None:
    one = account(rate=2.0, burst=3.0)
    assert [one.take(0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert one.take(0.0) == 0.5
    assert one.take(0.4) == pytest.approx(0.1)
    assert one.take(0.5) == 0.0
    assert [one.take(100.0) for _ in range(4)].count(0.0) == 3


def test_a_large_write_passes_once_and_is_paid_for_by_those_behind_it() -> None:
    one = account(rate=2.0, burst=3.0)
    assert one.take(0.0, cost=103.0) == 0.0
    assert one.take(0.0) == 50.5
    one.owe(2.0)
    assert one.take(0.0) == 51.5
    assert one.take(51.5) == 0.0


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    one = account(rate=1.0, burst=1.0, now=10.0)
    assert one.take(10.0) == 0.0
    assert one.take(5.0) > 0


def test_a_burst_is_two_seconds_of_the_rate_unless_it_is_set() -> None:
    assert SecuritySettings().burst == 10_000
    assert SecuritySettings(write_rate=5.0).burst == 10
    assert SecuritySettings(write_rate=0.1).burst == 1
    assert SecuritySettings(write_rate=5.0, write_burst=50.0).burst == 50


def test_no_rate_is_no_limit() -> None:
    one = account(0, 1)
    assert all(one.take(0.0) == 0.0 for _ in range(100))


def test_accounts_do_not_pile_up_and_none_in_use_is_forgotten() -> None:
    accounts = Accounts(SecuritySettings())
    used = accounts.of("used", 0.0)
    used.connections = 1
    for number in range(ACCOUNTS_MAX + 10):
        accounts.of(str(number), 0.0)
    assert len(accounts._accounts) == ACCOUNTS_MAX
    assert accounts.of("used", 0.0) is used


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert is_loopback(host)
    check_exposure(ServerSettings(host=host))


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.1", "mesh.example", "", "127.0.0.1.evil.example"]
)
def test_any_other_address_is_refused_without_tls(host: str) -> None:
    with pytest.raises(InvalidSettings, match="no TLS"):
        check_exposure(ServerSettings(host=host))


def test_with_tls_it_may_be_exposed() -> None:
    check_exposure(ServerSettings(host="0.0.0.0", tls_cert="cert.pem", tls_key="key.pem"))


def test_a_bound_address_is_a_name_and_every_address_is_none() -> None:
    assert own_names("192.168.1.1") == ("192.168.1.1",)
    assert own_names("fe80::1") == ("[fe80::1]",)
    assert own_names("mesh.example") == ("mesh.example",)
    assert own_names("0.0.0.0") == own_names("::") == ()


def test_tls_files_that_do_not_fit_are_said(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nonsense")
    with pytest.raises(InvalidSettings, match="TLS files"):
        tls_context(ServerSettings(tls_cert=str(tmp_path / "x.pem"), tls_key=str(tmp_path / "x.pem")))
    with pytest.raises(InvalidSettings, match="TLS files"):
        tls_context(ServerSettings(tls_cert=str(tmp_path / "none.pem"), tls_key=str(tmp_path / "none.pem")))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_tls_is_new_and_asks_for_client_certificates_when_told(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    context = tls_context(ServerSettings(tls_cert=cert, tls_key=key))
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.verify_mode == ssl.CERT_NONE
    mutual = tls_context(ServerSettings(tls_cert=cert, tls_key=key, tls_client_ca=cert))
    assert mutual is not None
    assert mutual.verify_mode == ssl.CERT_REQUIRED
    assert tls_context(ServerSettings()) is None


def self_signed(folder: Path) -> tuple[str, str]:
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return cert, key
