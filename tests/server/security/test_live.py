"""Tokens, leases and the audit of a real server: what one test must not see of another's secrets."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaymesh.server.security.chain import read_lines
from relaymesh.server.security.tokens import TokenFile
from tests.server.security.serving import ANSWER_SECONDS, Serving, close_code, opened, serving
from tests.server.security.test_hosts import self_signed

SOON = 20.0
"""A revocation takes effect within a second; a busy machine may take longer to notice."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("live")) as running:
        with running.client("admin") as client:
            for agent in ("coder", "planner", "team/coder"):
                assert client.put(f"/v1/mailboxes/{agent}", json={}).status_code == 200
        yield running


def soon(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def relaymesh(server: Serving, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relaymesh.cli.main", *words, "--dir", str(server.directory), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def one_delivery(server: Serving, content: str) -> dict[str, Any]:
    """A message that coder holds a lease of."""
    with server.client("planner") as planner, server.client("coder") as coder:
        sent = planner.post("/v1/messages", json={"to": "coder", "content": content})
        assert sent.status_code == 202, sent.text
        got = coder.post("/v1/mailboxes/coder/receive", json={"max": 1, "waitMs": 10_000}).json()
        [delivery] = got["deliveries"]
        assert isinstance(delivery, dict)
        return delivery


# -- identity


def test_the_sender_is_stamped_from_the_credential(server: Serving) -> None:
    delivery = one_delivery(server, "who am I?")
    assert delivery["message"]["from"].rpartition("/")[2] == "planner"
    with server.client("coder") as coder:
        coder.post("/v1/settle", json={"acks": [delivery["token"]]})


@pytest.mark.parametrize("thief", ["planner", "team"])
@pytest.mark.parametrize("how", ["acks", "nacks", "extends", "drops"])
def test_a_lease_token_is_worth_nothing_to_another_credential(server: Serving, thief: str, how: str) -> None:
    delivery = one_delivery(server, f"{thief} {how}")
    token = delivery["token"]
    body = {
        "acks": {"acks": [token]},
        "drops": {"drops": [token]},
        "nacks": {"nacks": [{"token": token, "code": "x"}]},
        "extends": {"extends": [{"token": token, "ms": 60_000}]},
    }[how]
    with server.client(thief) as client:
        answer = client.post("/v1/settle", json=body)
        assert answer.status_code == 409, answer.text
        outcomes = [each["outcome"] for each in answer.json()["results"]]
        assert outcomes in (["refused"], ["lease_lost"])
    with server.client("coder") as coder:
        settled = coder.post("/v1/settle", json={"acks": [token]}).json()
        assert [each["outcome"] for each in settled["results"]] == ["acked"]


def test_a_team_sees_nothing_of_another(server: Serving) -> None:
    with server.client("rw") as client:
        sent = client.post("/v1/messages", json={"to": "coder", "from": "planner", "content": "ours"})
        id = (
            sent.json()["receipts"][0]["messageId"] if "receipts" in sent.json() else sent.json()["messageId"]
        )
    with server.client("team") as team:
        assert team.get("/v1/mailboxes/default/coder").status_code == 403
        assert team.get(f"/v1/messages/{id}").status_code in (403, 404)
        assert "default/coder" not in team.get("/v1/stats").text
        assert "default/" not in team.get("/v1/agents").text
        got = team.post("/v1/mailboxes/coder/receive", json={"max": 10}).json()
        assert got["deliveries"] == []


# -- tokens, changed while the server runs


def test_a_token_made_and_revoked_on_the_command_line_works_without_a_restart(server: Serving) -> None:
    made = relaymesh(server, "token", "create", "--role", "ro", "--label", "short-lived")
    assert made.returncode == 0, made.stderr
    row = json.loads(made.stdout)
    headers = {"Authorization": f"Bearer {row['token']}"}

    def status() -> int:
        return httpx.get(
            f"{server.url}/v1/stats", headers=headers, timeout=ANSWER_SECONDS, trust_env=False
        ).status_code

    soon(lambda: status() == 200, "the new token is not known")
    assert relaymesh(server, "token", "revoke", row["id"], "--yes").returncode == 0
    soon(lambda: status() == 401, "the revoked token still works")


def test_a_revocation_ends_an_open_websocket(server: Serving) -> None:
    file = TokenFile(server.folder)
    token, text = file.create(["read", "write"])
    server.tokens["doomed"] = text
    with server.client("doomed") as client:
        soon(lambda: client.get("/v1/stats").status_code == 200, "not known yet")
    with opened(server, "doomed") as connection:
        file.revoke(token.id)
        assert close_code(connection) == 4401


def test_the_local_token_opens_everything_and_is_private(server: Serving) -> None:
    path = server.folder / "local.token"
    assert path.stat().st_mode & 0o077 == 0
    server.tokens["local"] = path.read_text()
    with server.client("local") as client:
        assert client.get("/v1/stats").status_code == 200
        assert client.get("/v1/mailboxes/team/coder").status_code == 200


def test_no_token_is_in_any_file_or_any_answer(server: Serving) -> None:
    """Not in the journal, the store, the audit or the log; and not in what is answered to a wrong one."""
    nearly = server.tokens["rw"][:-1] + "_"
    with httpx.Client(base_url=server.url, trust_env=False, timeout=ANSWER_SECONDS) as client:
        answers = [
            client.get("/v1/stats", headers={"Authorization": f"Bearer {nearly}"}),
            client.get(f"/v1/stats?token={nearly}"),
            client.get(f"/v1/mailboxes/{nearly}"),
            client.get("/v1/stats", headers={"Authorization": f"Bearer {nearly}", "User-Agent": nearly}),
            client.get("/v1/stats", headers={"Authorization": nearly, "Referer": f"http://a/{nearly}"}),
        ]
    secrets = [text.split("_", 2)[2][:-1] for name, text in server.tokens.items() if name != "local"]
    assert [answer.status_code for answer in answers] == [401, 400, 400, 401, 401]
    assert not any(secret in answer.text for answer in answers for secret in secrets)
    soon(lambda: any(line["event"] == "auth.refused" for line in server.audit()), "nothing was audited")
    for path in server.directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not [secret for secret in secrets if secret.encode() in data], path


# -- the audit


def test_every_write_is_in_the_audit_and_the_chain_is_sound(server: Serving) -> None:
    with server.client("planner") as planner:
        planner.post(
            "/v1/messages",
            json={"to": "nobody", "content": "audited"},
            headers={"User-Agent": "auditor/1", "X-Forwarded-For": "6.6.6.6"},
        )

    def found() -> list[dict[str, Any]]:
        return [line for line in server.audit() if line.get("user_agent") == "auditor/1"]

    soon(lambda: bool(found()), "it was not audited")
    [line] = found()
    assert (line["event"], line["method"], line["status"]) == ("web.write", "POST", 404)
    assert (line["route"], line["agent"], line["remote_addr"]) == ("/v1/messages", "planner", "127.0.0.1")
    assert line["x_forwarded_for"] == "6.6.6.6"
    assert "audited" not in str(line), "content is not for the audit"
    assert relaymesh(server, "audit", "verify").returncode == 0


def test_a_killed_server_leaves_a_sound_audit_and_goes_on_with_it(tmp_path: Path) -> None:
    directory = tmp_path / "killed"
    for run in range(1, 4):
        with serving(directory) as running:
            with running.client("rw") as client:
                for _ in range(20):
                    client.put("/v1/mailboxes/coder", json={})
            soon(lambda run=run: starts(directory) == run, "nothing was audited")  # type: ignore[misc]
            running.kill()
        assert [line for line in read_lines(directory / "server") if line.fault] == []


def starts(directory: Path) -> int:
    return [line.fields["event"] for line in read_lines(directory / "server")].count("server.started")


# -- TLS


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_over_tls_the_same_rules_hold_and_plain_http_is_hung_up_on(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    with serving(tmp_path / "tls", "--tls-cert", cert, "--tls-key", key) as running:
        trusting = ssl.create_default_context(cafile=cert)
        url = f"https://localhost:{running.port}"
        with httpx.Client(base_url=url, verify=trusting, trust_env=False, timeout=ANSWER_SECONDS) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/stats").status_code == 401
            assert client.get("/healthz", headers={"Host": "evil.example"}).status_code == 421
        with socket.create_connection(("127.0.0.1", running.port), ANSWER_SECONDS) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                assert b"200" not in plain.recv(100)
            except ConnectionResetError:
                pass


def test_a_server_that_others_could_reach_does_not_start_without_tls(tmp_path: Path) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "relaymesh.cli.main",
            "serve",
            "--host",
            "0.0.0.0",
            "--dir",
            str(tmp_path / "x"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "INVALID_SETTINGS" in ended.stderr
    assert "--tls-cert" in ended.stderr
