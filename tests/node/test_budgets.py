"""Budgets through a session: what is kept is bounded, shown, and counted again after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from relaymesh import Mesh, OverBudget
from relaymesh.errors import PayloadTooLarge
from relaymesh.kernel.commands import Ack, Expect, Nack, OpenMailbox, Publish, Send, Settle, Subscribe
from relaymesh.kernel.envelope import Envelope
from relaymesh.node.async_local import AsyncLocalSession
from relaymesh.node.local import LocalSession
from relaymesh.node.node import Node
from relaymesh.node.settings import MeshSettings
from relaymesh.wire.housekeeping import Stats

BOX, SENDER = "default/coder", "default/sender"


def letter(id: str, size: int = 1, **fields: object) -> Envelope:
    return Envelope(id, SENDER, b"x" * size, **fields)  # type: ignore[arg-type]


def test_a_session_passes_its_budget_on(tmp_path: Path) -> None:
    node = Node(tmp_path, MeshSettings())
    session = LocalSession(node)
    try:
        session.execute(OpenMailbox(BOX, budget=5_000))
        session.execute(Send([(BOX, [letter("1", 3_000)])], budget=5_000))
        with pytest.raises(OverBudget):
            session.execute(Send([(BOX, [letter("2", 3_000)])], budget=5_000))
        with pytest.raises(OverBudget):
            session.execute(Expect(BOX, "question", budget=100))
        [lease] = session.receive(BOX, 1, 0).rows()
        with pytest.raises(OverBudget):
            session.execute(Settle(lease.token, [(BOX, [letter("answer", 3_000)])], budget=5_000))
        assert session.execute(Ack([lease.token])) == []
        assert session.execute(Send([(BOX, [letter("2", 3_000)])], budget=5_000))
    finally:
        node.close()


def test_an_awaited_session_does_too(tmp_path: Path) -> None:
    asyncio.run(_an_awaited_session(tmp_path))


async def _an_awaited_session(tmp_path: Path) -> None:
    node = Node(tmp_path, MeshSettings())
    session = AsyncLocalSession(node)
    try:
        with pytest.raises(OverBudget):
            await session.execute(OpenMailbox(BOX, budget=1))
        await session.execute(OpenMailbox(BOX))
        with pytest.raises(OverBudget):
            await session.execute(Send([(BOX, [letter("1")])], budget=1))
        with pytest.raises(OverBudget):
            await session.execute(Expect(BOX, "question", budget=1))
        settings = node.core.kernel.state.mailboxes[BOX].settings
        with pytest.raises(OverBudget):
            await session.execute(Subscribe("default/t", "default/t:coder", settings, owner=BOX, budget=1))
        await session.execute(Subscribe("default/t", "default/t:coder", settings, owner=BOX))
        assert (await session.execute(Publish("default/t", [letter("1")], budget=1)))[0].targets == 1
        await session.execute(Subscribe("default/t", "default/t:other", settings))
        with pytest.raises(OverBudget):
            await session.execute(Publish("default/t", [letter("2")], budget=1))
        stats = await session.execute(Stats())
        assert stats.kept["subscriptions of default/coder"] > 4_096
        assert stats.mailboxes["default/t:coder"].bytes == 1
    finally:
        await session.close()


def test_what_is_kept_for_a_sender_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with Mesh(tmp_path) as mesh:
        coder, sender = mesh.agent("coder"), mesh.agent("sender")
        for n in range(5):
            sender.send("coder", "x" * 100 * n)
        for delivery in coder.receive_many(3):
            delivery.nack("bad" * 10_000, retryable=False)
        before = mesh.stats()
    with Mesh(tmp_path) as mesh:
        after = mesh.stats()
        assert after.kept == before.kept
        box = after.mailboxes[BOX]
        assert (box.dead_letters, box.pending) == (3, 2)
        assert 6_000 < box.dead_letter_bytes < 7_000


def test_unknown_fields_count_for_a_batch(tmp_path: Path) -> None:
    node = Node(tmp_path, MeshSettings(batch_bytes_max=1_000))
    try:
        LocalSession(node).execute(OpenMailbox(BOX))
        with pytest.raises(PayloadTooLarge):
            LocalSession(node).execute(Send([(BOX, [letter("1", extra=b"{}" * 600)])]))
    finally:
        node.close()


def test_a_nack_of_fifteen_megabytes_writes_ten_kilobytes(tmp_path: Path) -> None:
    node = Node(tmp_path, MeshSettings())
    session = LocalSession(node)
    try:
        session.execute(OpenMailbox(BOX))
        session.execute(Send([(BOX, [letter("1")])]))
        [lease] = session.receive(BOX, 1, 0).rows()
        before = node.core.journal.bytes_written
        session.execute(Nack(lease.token, "busy", "r" * 1_000_000, "s" * 15_000_000))
        assert node.core.journal.bytes_written - before < 12_000
    finally:
        node.close()
