"""What is told of sends and deaths: log lines, counters and alerts. The same for both twins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relaymesh import AsyncMesh, MailboxFull
from relaymesh.kernel.contract import Rule
from relaymesh.testing import ManualMesh

Told = Callable[[str], list[logging.LogRecord]]


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Told:
    caplog.set_level(logging.INFO, "relaymesh")
    return lambda name: [record for record in caplog.records if record.name == name]


def fields(record: logging.LogRecord, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in names)


# -- duplicates


def test_a_duplicate_is_logged_and_counted(told: Told) -> None:
    with ManualMesh() as mesh:
        planner, _ = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, id="m-1")
        assert mesh.stats().duplicates == 0
        planner.send("coder", 1, id="m-1")
        planner.send_many([{"to": "coder", "content": 2, "id": "m-2"}] * 3)
        mesh.publish("news", 1, id="n-1")
        mesh.publish("news", 1, id="n-1")
        assert mesh.stats().duplicates == 4
    lines = [x for x in told("relaymesh.admission") if "duplicate" in x.getMessage()]
    assert [fields(x, "message_id", "to", "sender") for x in lines] == [
        ("m-1", "default/coder", "default/planner"),
        ("m-2", "default/coder", "default/planner"),
        ("m-2", "default/coder", "default/planner"),
        ("n-1", "topic:default/news", "default/mesh"),
    ]
    assert {x.levelname for x in lines} == {"INFO"}


def test_a_call_that_is_refused_has_no_duplicates(told: Told) -> None:
    with ManualMesh() as mesh:
        planner, _ = mesh.agent("planner"), mesh.agent("coder", capacity=1)
        planner.send("coder", 1, id="m-1")
        with pytest.raises(MailboxFull):
            planner.send_many([{"to": "coder", "content": 1, "id": "m-1"}, {"to": "coder", "content": 2}])
        assert mesh.stats().duplicates == 0
    assert [x for x in told("relaymesh.admission") if "duplicate" in x.getMessage()] == []


# -- delayed messages


def test_sending_a_delayed_message_is_logged_with_its_time(told: Told) -> None:
    with ManualMesh() as mesh:
        planner, _ = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, id="now")
        receipt = planner.send("coder", 2, id="later", delay_ms=60_000)
        planner.send("coder", 2, id="later", delay_ms=60_000)  # a duplicate: nothing is delayed again
        mesh.publish("news", 3, id="news", delay_ms=1_000)
    assert receipt.scheduled_at is not None
    lines = [x for x in told("relaymesh.admission") if "delayed message sent" in x.getMessage()]
    at = f"{receipt.scheduled_at:%Y-%m-%dT%H:%M:%S}"
    assert [fields(x, "message_id", "to", "sender", "delay_ms") for x in lines] == [
        ("later", "default/coder", "default/planner", 60_000),
        ("news", "topic:default/news", "default/mesh", 1_000),
    ]
    assert fields(lines[0], "deliver_at")[0].startswith(at)


# -- refused sends


def test_a_refused_send_is_counted_by_its_code_and_logged(told: Told) -> None:
    with ManualMesh() as mesh:
        planner, _ = mesh.agent("planner"), mesh.agent("coder", capacity=1)
        planner.send("coder", 1)
        assert mesh.stats().refused == {}
        for timeout in (None, 0.5):
            with pytest.raises(MailboxFull):
                planner.send("coder", 2, timeout=timeout)
        mesh.subscribe("news", "reader", capacity=1)
        mesh.publish("news", 1)
        with pytest.raises(MailboxFull):
            mesh.publish("news", 2)
        assert mesh.stats().refused == {"MAILBOX_FULL": 3}
    first = told("relaymesh.admission")[0]
    assert fields(first, "error_code", "levelname") == ("MAILBOX_FULL", "WARNING")
    assert "default/coder is full" in first.getMessage()


def test_a_flood_of_refused_sends_is_a_line_a_second(told: Told) -> None:
    with ManualMesh() as mesh:
        planner, _ = mesh.agent("planner"), mesh.agent("coder", capacity=1)
        planner.send("coder", 1)
        for _ in range(1_000):
            with pytest.raises(MailboxFull):
                planner.send("coder", 2)
        assert len(told("relaymesh.admission")) == 1
        mesh.advance(1)
        with pytest.raises(MailboxFull):
            planner.send("coder", 2)
        assert mesh.stats().refused == {"MAILBOX_FULL": 1_001}
    assert [fields(x, "count")[0] for x in told("relaymesh.admission")] == [1, 1_000]


def test_an_async_mesh_tells_the_same(told: Told, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncMesh(tmp_path) as mesh:
            planner, _ = await mesh.agent("planner"), await mesh.agent("coder", capacity=1)
            await planner.send("coder", 1, id="m-1", delay_ms=60_000)
            await planner.send("coder", 1, id="m-1")
            with pytest.raises(MailboxFull):
                await planner.send("coder", 2, timeout=0.01)
            stats = await mesh.stats()
            assert (stats.duplicates, stats.refused) == (1, {"MAILBOX_FULL": 1})

    asyncio.run(main())
    said = [x.getMessage().partition(":")[0] for x in told("relaymesh.admission")]
    assert said == ["delayed message sent", "duplicate message skipped", "send refused"]


# -- alerts


@pytest.mark.parametrize(
    ("code", "level"),
    [
        ("timeout", "ERROR"),
        ("fatal", "ERROR"),
        ("other", "WARNING"),
        ("invalid", "WARNING"),
        ("rate_limited", "WARNING"),
        ("my_own", "WARNING"),
    ],
)
def test_every_death_raises_an_alert(told: Told, code: str, level: str) -> None:
    """Promise 11: an error where the contract says that somebody is to be woken, else a warning."""
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        planner.send("coder", 1, id="m-1")
        coder.receive().nack("no", code=code, retryable=False)
    (alert,) = told("relaymesh.alert")
    assert alert.levelname == level
    assert fields(alert, "message_id", "error_code", "final_state") == ("m-1", code, "dead_letter")


def test_a_contract_may_make_any_class_an_error(told: Told) -> None:
    with ManualMesh() as mesh:
        planner = mesh.agent("planner")
        coder = mesh.agent("coder", contract={"invalid": Rule(0, alert=True)})
        planner.send("coder", 1, id="m-1")
        coder.receive().nack("no", code="invalid")
    assert [x.levelname for x in told("relaymesh.alert")] == ["ERROR"]


def test_what_ends_elsewhere_raises_no_alert(told: Told) -> None:
    with ManualMesh() as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        for code in ("duplicate", "other"):
            planner.send("coder", 1)
            coder.receive().nack("no", code=code, delay_ms=0)
        coder.receive().ack()
    assert told("relaymesh.alert") == []


def test_thousands_that_die_at_once_are_one_alert(told: Told) -> None:
    with ManualMesh() as mesh:
        planner, _, _ = mesh.agent("planner"), mesh.agent("coder"), mesh.agent("tester")
        planner.send_many([{"to": "coder", "content": n, "id": f"m-{n}", "ttl": 1} for n in range(3_000)])
        planner.send("tester", 1, id="alone", ttl=1)
        mesh.advance(2)
        assert mesh.stats().dead_letters == 3_001
    many, alone = sorted(told("relaymesh.alert"), key=lambda record: -record.count)  # type: ignore[attr-defined]
    assert fields(many, "count", "subscriber", "error_code", "levelname") == (
        3_000,
        "coder",
        "ttl_expired",
        "WARNING",
    )
    assert "3000 dead letters" in many.getMessage()
    assert fields(alone, "count", "message_id") == (1, "alone")


# -- what is not undone


def test_an_undo_whose_expression_fails_raises_an_alert(told: Told) -> None:
    """As its dead letter does: what was done stays done, and a person must know."""
    undo = {"input": {"booking": "${{ output.booking }}"}}
    steps = {
        "flight": {"agent": "airline", "compensate": undo},
        "hotel": {"agent": "desk", "needs": ["flight"]},
    }
    with ManualMesh() as mesh:
        airline, desk = mesh.agent("airline"), mesh.agent("desk")
        task = mesh.submit({"workflow": "trip", "steps": steps})
        airline.receive().finish({"number": 7})
        desk.receive().fail("fully booked")
        assert task.show().status == "FAILED"
    (alert,) = told("relaymesh.alert")
    assert alert.levelname == "ERROR"
    assert fields(alert, "task", "step", "agent", "status") == (task.id, "flight!undo", "airline", "FAILED")
    assert "booking" in alert.getMessage()
