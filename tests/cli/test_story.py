"""story: what became of one message."""

from __future__ import annotations

from relaymesh import Mesh
from tests.cli.running import Cli


def test_a_story_names_each_mailbox_and_each_failure(cli: Cli) -> None:
    [row] = cli.json("story", "dead-0").rows
    assert (row["mailbox"], row["state"], row["attempts"]) == ("default/coder", "dead", 1)
    assert row["failures"][0]["code"] == "bad_patch"
    shown = cli("story", "dead-0").out
    assert "1: bad_patch ValueError: no such line 0" in shown


def test_a_published_message_has_a_stay_in_each_subscription(cli: Cli) -> None:
    rows = cli.json("story", "order-42").rows
    assert {row["mailbox"] for row in rows} == {"default/order.*:audit", "default/order.created:billing"}
    assert {row["state"] for row in rows} == {"ready"}


def test_a_story_goes_on_beside_a_running_process(cli: Cli) -> None:
    with Mesh(cli.path) as mesh:
        delivery = mesh.agent("coder").receive(timeout=5)
        mesh.checkpoint()
        [row] = cli.json("story", delivery.id).rows
        assert (row["state"], row["holder"]) == ("leased", mesh._session.holder)  # type: ignore[attr-defined]
        delivery.ack(durable=True)
        [row] = cli.json("story", delivery.id).rows
        assert row["state"] in ("acked", "settled"), "the tables may be a moment behind"
    assert cli.json("story", delivery.id).row["state"] == "acked"


def test_a_message_that_never_was_is_named(cli: Cli) -> None:
    ran = cli("story", "none")
    assert ran.code != 0
    assert "there is no message 'none'" in ran.err
