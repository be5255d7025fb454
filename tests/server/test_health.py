"""Whether the node lives, whether it takes messages, what it counts, and how it says no."""

from __future__ import annotations

import errno
import json
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from relaymesh.errors import MailboxFull, MeshError, SenderError
from relaymesh.server.app import ROUTES
from relaymesh.server.codes import CODES
from relaymesh.server.problem import TITLES, problem_answer, status_of
from relaymesh.server.routes.metrics import Sample, render
from tests.server.serving import URL, serving


async def test_health_and_readiness_need_no_token_and_say_nothing_of_the_data(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        anybody = httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url=URL)
        async with anybody:
            assert (await anybody.get("/healthz")).json() == {"status": "ok"}
            assert (await anybody.get("/readyz")).json() == {"status": "ready", "reasons": []}
            assert (await anybody.head("/healthz")).status_code == 200
            for path in ("/metrics", "/v1/stats", "/v1/node", "/nowhere"):
                assert (await anybody.get(path)).status_code == 401
            api.served.stopping.set()
            answer = await anybody.get("/readyz")
            assert (answer.status_code, answer.json()["reasons"]) == (503, ["the node is stopping"])
            assert (await anybody.get("/healthz")).status_code == 200


async def test_documents_need_no_token_and_the_page_may_have_its_own_style_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        anybody = httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url=URL)
        async with anybody:
            for path in ("/openapi.json", "/asyncapi.json", "/schemas/envelope.schema.json"):
                assert (await anybody.get(path)).status_code == 200
            page = await anybody.get("/docs")
            style = re.search(r"<style>(.*?)</style>", page.text, re.DOTALL)
            assert style is not None
            digest = b64encode(sha256(style[1].encode()).digest()).decode()
            assert f"style-src 'sha256-{digest}'" in page.headers["content-security-policy"]
            assert (await anybody.post("/docs")).status_code == 401


async def test_a_journal_that_failed_is_503_and_not_ready(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")

        def broken(payload: bytes, events: int, now_ns: int, before: bytes = b"") -> None:
            raise OSError(errno.EIO, "the disk is gone")

        api.served.node.core.journal.append = broken  # type: ignore[method-assign]
        message = {"from": "planner", "to": "coder", "content": 1}
        answer = await api.admin.post("/v1/messages", json=message)
        assert (answer.status_code, answer.json()["code"]) == (503, "JOURNAL_POISONED")
        assert "same id" in answer.json()["hint"]
        assert (await api.admin.post("/v1/settle", json={"acks": ["0.1.1"]})).status_code == 503
        assert (await api.admin.get("/readyz")).status_code == 503
        assert (await api.admin.get("/healthz")).status_code == 200


async def test_the_node_says_what_a_client_needs_to_know(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        told = (await api.agent("coder").get("/v1/node")).json()
        assert told["protocol"] == "1.1.0"
        assert (told["namespace"], told["epoch"]) == ("default", 1)
        assert told["payloadBytesMax"] == 10_485_760


async def test_counters_add_up_and_show_only_ones_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        for n in range(4):
            await api.send("coder", n)
        tokens = [each["token"] for each in await api.receive("coder", max=3)]
        await api.settle(acks=tokens[:1], drops=tokens[1:2], nacks=[{"token": tokens[2], "code": "invalid"}])
        stats = (await api.admin.get("/v1/stats")).json()
        box = stats["mailboxes"]["default/coder"]
        assert box["accepted"] == 4 == box["acked"] + box["dropped"] + box["dead"] + box["pending"]
        assert stats["deadLetters"] == 1
        red = (await api.client(["read"], namespace="red").get("/v1/stats")).json()
        assert (red["mailboxes"], red["deadLetters"]) == ({}, 0)


async def test_metrics_are_prometheus_text_with_the_names_that_were_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.send("coder", 1)
        [delivery] = await api.receive("coder")
        await api.settle(nacks=[{"token": delivery["token"], "reason": "again"}])
        answer = await api.admin.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        samples = _samples(answer.text)
        assert samples['relaymesh_queue_depth{mailbox="default/coder"}'] == 1
        assert samples['relaymesh_retry_total{mailbox="default/coder"}'] == 1
        assert samples['relaymesh_dead_total{mailbox="default/coder"}'] == 0
        assert samples['relaymesh_low_starvation_count{mailbox="default/coder"}'] == 0
        assert samples['mailbox_queue_depth{receiver="default/coder",priority="3"}'] == 1
        assert samples['mailbox_retry_total{receiver="default/coder"}'] == 1
        assert samples["relaymesh_web_write_get_compat_total"] == 0
        assert samples["relaymesh_web_write_rate_limited_total"] == 0
        assert samples["dlq_depth_total"] == 0
        other = await api.client(["read"], namespace="red").get("/metrics")
        assert "default/coder" not in other.text
        assert (await api.agent("coder").get("/metrics")).status_code == 403


async def test_duplicates_and_refused_sends_are_counted(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        await api.admin.put("/v1/mailboxes/coder", json={"settings": {"capacity": 1}})
        before = _samples((await api.admin.get("/metrics")).text)
        assert (
            before["relaymesh_duplicates_total"] == before['publish_timeout_total{code="MAILBOX_FULL"}'] == 0
        )
        for _ in range(3):
            await api.send("coder", 1, id="m-1")
        full = {"from": "planner", "to": "coder", "content": 2}
        assert (await api.admin.post("/v1/messages", json=full)).json()["code"] == "MAILBOX_FULL"
        after = _samples((await api.admin.get("/metrics")).text)
        assert after["relaymesh_duplicates_total"] == 2
        assert after['publish_timeout_total{code="MAILBOX_FULL"}'] == 1
        stats = (await api.admin.get("/v1/stats")).json()
        assert (stats["duplicates"], stats["refused"]) == (2, {"MAILBOX_FULL": 1})


async def test_metrics_print_every_digit_of_a_count(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        mailbox = api.served.node.core.kernel.state.mailboxes["default/coder"]
        mailbox.counters.accepted = mailbox.counters.acked = 12_345_678_901
        mailbox.counters.retried = 1_000_001
        mailbox.by_priority[3] = 2_000_003
        api.served.counts.requests = 9_007_199_254_740_993
        lines = (await api.admin.get("/metrics")).text.splitlines()
        assert 'messages_sent_total{receiver="default/coder"} 12345678901' in lines
        assert 'messages_processed_total{receiver="default/coder",status="acked"} 12345678901' in lines
        assert 'mailbox_retry_total{receiver="default/coder"} 1000001' in lines
        assert 'mailbox_queue_depth{receiver="default/coder",priority="3"} 2000003' in lines
        assert "relaymesh_web_requests_total 9007199254740994" in lines


def test_a_sample_that_is_no_whole_number_is_printed_exactly_too() -> None:
    samples: list[Sample] = [({"of": "a"}, 0.1 + 0.2), ({}, 1e300), ({}, 1234567.5)]
    lines = render([("rate", "gauge", "Some rate.", samples)]).splitlines()[2:]
    assert lines == ['rate{of="a"} 0.30000000000000004', "rate 1e+300", "rate 1234567.5"]


def _samples(text: str) -> dict[str, float]:
    """Every sample; each must follow the HELP and TYPE of its family, and no family comes twice."""
    samples: dict[str, float] = {}
    families: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            families.append(line.split()[2])
        elif line.startswith("# TYPE "):
            assert line.split()[2] == families[-1]
            assert line.split()[3] in ("counter", "gauge")
        else:
            name, value = line.rsplit(" ", 1)
            assert name.partition("{")[0] == families[-1]
            samples[name] = float(value)
    assert len(set(families)) == len(families)
    return samples


async def test_a_checkpoint_is_for_an_admin_of_every_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        answer = await api.client(["admin"], "*").post("/v1/checkpoint")
        assert answer.json()["sequence"] >= 1
        for refused in (api.client(["write"]), api.admin, api.client(["admin"], "red")):
            assert (await refused.post("/v1/checkpoint")).status_code == 403


async def test_the_journal_is_for_an_admin_of_every_namespace(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        everywhere = await api.client(["admin"], "*").get("/v1/journal")
        assert everywhere.status_code == 200
        assert everywhere.json()["frames"]
        for refused in (api.client(["read", "write"]), api.admin, api.client(["admin"], "red")):
            answer = await refused.get("/v1/journal")
            assert answer.status_code == 403
            assert "frames" not in answer.json()


async def test_the_root_leads_a_stranger_to_everything_else(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        anybody = httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url=URL)
        async with anybody:
            index = (await anybody.get("/")).json()
            for name in ("docs", "openapi", "asyncapi", "health", "ready"):
                assert (await anybody.get(index[name])).status_code == 200
            for path in index["schemas"]:
                assert (await anybody.get(path)).status_code == 200
            assert index["websocket"] == "/v1/ws"
            assert (await anybody.post("/")).status_code == 401


# -- how the server says no -------------------------------------------------------------------


async def test_an_unknown_path_is_404_and_a_wrong_method_405_with_those_that_are_right(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        for path in ("/", "/v1", "/v1/", "/v1/messages/", "/v2/messages"):
            answer = await api.admin.post(path, json={})
            assert answer.status_code in (404, 405), path
            assert answer.json()["code"] in ("NOT_FOUND", "METHOD_NOT_ALLOWED")
        answer = await api.admin.delete("/v1/messages")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        answer = await api.admin.patch("/v1/mailboxes/coder/breaker")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, PUT")
        assert answer.json()["code"] == "METHOD_NOT_ALLOWED"
        answer = await api.admin.get("/v1/settle")
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
async def test_a_body_that_does_not_say_it_is_json_is_415(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        body = b'{"from":"planner","to":"coder","content":1}'
        headers = {"content-type": kind} if kind else {}
        answer = await api.admin.post("/v1/messages", content=body, headers=headers)
        assert answer.status_code == 415
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "application/cloudevents+json"]
)
async def test_json_by_any_of_its_names_is_taken(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        body = b'{"from":"planner","to":"coder","content":1}'
        answer = await api.admin.post("/v1/messages", content=body, headers={"content-type": kind})
        assert answer.status_code == 202


def _errors(kind: type[MeshError] = MeshError) -> list[type[MeshError]]:
    return [each for sub in kind.__subclasses__() for each in (sub, *_errors(sub))]


def test_every_status_has_a_title() -> None:
    assert {row.status for row in CODES if row.status} | {403} <= TITLES.keys()


def test_what_a_sender_did_wrong_is_never_a_5xx() -> None:
    for kind in _errors(SenderError):
        if (
            kind.__module__.startswith("relaymesh.")
            and kind.code != "MESH_ERROR"
            and "cli" not in kind.__module__
        ):
            assert 400 <= status_of(kind("x")) < 500, kind


def test_a_problem_has_every_field_of_rfc_9457_and_our_own() -> None:
    status, headers, body = problem_answer(MailboxFull("mailbox default/x is full"), "/v1/messages")
    problem: dict[str, Any] = json.loads(body)
    assert problem == {
        "type": "urn:relaymesh:problem:mailbox-full",
        "title": TITLES[429],
        "status": 429,
        "detail": "mailbox default/x is full",
        "code": "MAILBOX_FULL",
        "hint": MailboxFull.default_hint,
        "retryable": True,
        "instance": "/v1/messages",
    }
    assert (b"content-type", b"application/problem+json") in headers
    assert status == 429


async def test_every_route_answers_an_empty_request_with_sense(tmp_path: Path) -> None:
    """No 5xx, and a problem for every refusal."""
    async with serving(tmp_path) as api:
        for operation in ROUTES:
            path = operation.path
            for name in ("mailbox", "topic", "id", "name", "dead_sequence"):
                path = path.replace(f"{{{name}:path}}", "x").replace(f"{{{name}}}", "x")
            answer = await api.admin.request(operation.method, path)
            assert answer.status_code < 500, (operation.method, path, answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"
                assert answer.json()["detail"]
