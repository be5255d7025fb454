"""The flows of the protocol, word for word: transcripts/*.txt, on a clock that moves only when told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.protocol.mailroom import Mailroom, blocks

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_the_flow_goes_as_it_is_written(path: Path, tmp_path: Path) -> None:
    room = Mailroom(tmp_path)
    try:
        for number, command, expected in blocks(path):
            assert room.run(command) == expected, f"{path.name}:{number}: {command}"
    finally:
        room.close()


def test_every_flow_of_the_protocol_has_its_transcript() -> None:
    assert {path.stem for path in TRANSCRIPTS} == {
        "ack_and_nack",
        "heartbeat",
        "registration",
        "retry",
        "task_by_mail",
        "task_failed",
        "task_taken_and_lost",
        "task_with_review",
        "time_to_live",
        "types",
    }
