"""Tasks over HTTP: bad plans with the line that every other way in gives, and the story of a task."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.plans.test_bad_plans import BAD
from tests.server.serving import serving


def _as_json(document: Any) -> str | None:
    """The document as a client can send it; None: it is no JSON, or other JSON than it was."""
    try:
        text = json.dumps(document, allow_nan=False, ensure_ascii=False)
        text.encode()
        return text if json.loads(text) == document and len(text) < 1_000_000 else None
    except (TypeError, ValueError, RecursionError):
        return None


SENDABLE = [
    (text, message)
    for _, document, message, _ in BAD
    if (text := _as_json(document)) is not None and text.startswith("{") and "nested deeper" not in message
]
"""Those that are sound JSON objects: others are refused by the reader, before they are plans."""


async def test_every_bad_plan_is_refused_with_the_line_that_names_step_and_place(tmp_path: Path) -> None:
    assert len(SENDABLE) >= 40
    headers = {"content-type": "application/json"}
    async with serving(tmp_path) as api:
        for document, message in SENDABLE:
            answer = await api.admin.post("/v1/tasks", content=f'{{"workflow": {document}}}', headers=headers)
            assert (answer.status_code, answer.json()["detail"]) == (400, message), document[:200]


def test_the_command_line_says_the_same(tmp_path: Path) -> None:
    """In one process, because each start of Python takes a second."""
    files = []
    for number, (document, message) in enumerate(SENDABLE):
        path = tmp_path / f"{number}.json"
        path.write_text(document)
        files.append((str(path), message))
    program = (
        "import json, sys\nfrom relaymesh.cli.main import main\n"
        "for path, message in json.load(sys.stdin):\n"
        "    assert main(['workflow', 'check', path]) == 2, path\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(files), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    assert len(lines) == len(files)
    for line, (file, message) in zip(lines, files, strict=True):
        read = message.replace("workflow 'w'", "plan")  # a value that is refused while the file is read
        told = line.removeprefix(f"error: INVALID_PLAN: {file}: ").partition(" | hint:")[0]
        assert told in (message, read)


async def test_the_story_of_a_task_is_for_its_namespace_and_ends_with_its_outcome(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        await api.open("coder")
        document = {"workflow": "one", "steps": {"only": {"agent": "coder"}}}
        task = (await api.admin.post("/v1/tasks", json={"workflow": document})).json()["task"]
        [delivery] = await api.receive("coder")
        await api.settle(finishes=[{"token": delivery["token"], "result": 7}])
        answer = await api.admin.get(f"/v1/tasks/{task}/story")
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert (told["task"], told["complete"]) == (task, True)
        assert [event["event"] for event in told["events"]] == [
            "submitted",
            "sent",
            "granted",
            "step_ended",
            "ended",
        ]
        assert told["events"][3]["token"] == delivery["token"]
        assert (await api.admin.get("/v1/tasks/none/story")).status_code == 404
