"""Nothing that others wrote speaks to the terminal of whoever looks at it: every command, text and JSON."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import relaymesh.cli
from relaymesh.cli.main import app
from relaymesh.cli.output import Output, Styled, json_text
from relaymesh.kernel.commands import Send
from relaymesh.kernel.envelope import Envelope
from relaymesh.sdk.mesh import Mesh
from relaymesh.server.address import server_folder
from relaymesh.server.security.chain import CURRENT, GENESIS, sealed
from relaymesh.server.security.tokens import TokenFile
from tests.cli.running import Cli, on_terminal

HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\u202eevil\u2066\u200b\x00\r\x08\x85\u2028\U000e0041end"
"""CSI and OSC, C0, C1, DEL, bidi overrides, a zero width space, line breaks of Unicode, a tag."""

COMMANDS: dict[str, list[str]] = {
    "status": [],
    "inbox": ["coder"],
    "send": ["coder", "--from", "planner", "--content-text", HOSTILE.replace("\x00", ""), "--id", "sent"],
    "ask": ["coder", HOSTILE.replace("\x00", ""), "--timeout", "0"],
    "answer": ["coder", "fine", "--id", "wait"],
    "story": ["dead" + HOSTILE],
    "tail": ["--last", "1000", "--once", "--full"],
    "doctor": [],
    "agent list": [],
    "agent show": ["coder"],
    "agent register": ["coder"],
    "agent drain": ["coder"],
    "topic pub": ["order.created", "--from", "planner", "--content-text", HOSTILE.replace("\x00", "")],
    "topic list": [],
    "topic sub": ["order.*", "audit"],
    "topic unsub": ["order.*", "audit", "--yes"],
    "submit": ["{plan}", "--input", "{input}"],
    "submit-workflow": ["{plan}", "--input", "{input}", "--key", "other"],
    "tasks": [],
    "cancel": ["{task}", "--reason", HOSTILE],
    "replay": ["{task}"],
    "workflow check": ["{bad plan}"],
    "workflow graph": ["{plan}"],
    "workflow run": ["{plan}", "--input", "{input}"],
    "workflow put": ["{plan}"],
    "workflow list": [],
    "workflow show": ["hostile"],
    "workflow remove": ["hostile", "--yes"],
    "schedule add": [
        "new",
        "--cron",
        "0 7 * * *",
        "--to",
        "coder",
        "--content",
        json.dumps({HOSTILE: HOSTILE}),
    ],
    "schedule list": [],
    "schedule show": ["hostile"],
    "schedule pause": ["hostile"],
    "schedule resume": ["hostile"],
    "schedule remove": ["hostile", "--yes"],
    "task submit": ["{plan}", "--input", "{input}"],
    "task list": [],
    "task show": ["{task}"],
    "task signal": ["{task}", HOSTILE, HOSTILE],
    "task answer": ["{task}", HOSTILE, HOSTILE],
    "task budget": ["{task}", "--tokens", "5"],
    "task rerun": ["{task}", "--from", HOSTILE],
    "purge": [],
    "dlq report": [],
    "task cancel": ["{task}", "--hard", "--reason", HOSTILE],
    "task replay": ["{task}"],
    "dlq list": [],
    "dlq show": ["dead"],
    "dlq redrive": ["--all", "--yes"],
    "dlq purge": ["--all", "--yes", "--reason", "tidy"],
    "token list": ["--all"],
    "token create": ["--agent", "other"],
    "token revoke": ["{token}", "--yes"],
    "token rotate": ["{token}"],
    "audit list": [],
    "audit verify": [],
    "bus status": ["{bus}"],
    "bus init": ["{bus}", "--agent", "coder"],
    "journal cat": ["--full"],
    "journal verify": [],
    "journal stat": [],
    "store rebuild": [],
    "settings show": [],
    "settings diff": [],
    "settings history": [],
    "settings-history": [],
    "ps": [],
    "logs": [],
    "restart": [HOSTILE.replace("\x00", "")],
    "down": [],
}
ELSEWHERE = {
    "settings reload": "asks a node that runs; prints names of settings through Output",
    "reload-settings": "asks a node that runs; prints names of settings through Output",
    "init": "writes files and prints their names",
    "up": "runs until stopped; its lines pass TeamLog, see tests/agents/test_team.py",
    "worker run": "runs the user's own program",
    "journal restore": "needs a mirror; prints paths and counts",
    "bus run": "serves until stopped; its notes pass Output.note",
    "demo": "prints its own words",
    "dev": "serves until stopped; its notes pass Output.note",
    "serve": "serves until stopped; its notes pass Output.note",
    "torture": "prints its own figures",
    "task watch": "waits for the end of a task; see test_task.py",
    "pipeline run": "needs Spark; prints through Output",
    "pipeline follow": "needs Spark; prints through Output",
    "pipeline backfill": "needs Spark; prints through Output",
    "pipeline compact": "needs Spark; prints through Output",
    "pipeline status": "needs Spark; prints through Output",
    "pipeline source list": "needs a warehouse that Spark made; prints through Output",
    "pipeline source move": "needs a warehouse that Spark made; prints through Output",
    "pipeline source forget": "needs a warehouse that Spark made; prints through Output",
    "pipeline verify": "needs a warehouse that Spark made; prints through Output",
    "report build": "needs Spark; prints through Output",
    "report open": "prints a path",
    "journal set-aside": "needs a record that cannot be read; prints through Output",
    "report advice": "needs Spark; prints through Output",
    "report sql": "needs Spark; prints through Output",
    "report tables": "needs Spark; prints through Output",
}
"""Why it is not run here. `test_only_the_output_layer_writes` covers all of them."""
DEMO_PRINT = (
    'print(json_text({"id": delivery.id, "attempt": delivery.attempt, "token": delivery.token}), flush=True)'
)
EXAMPLE_LOG = (
    "print(f\"working on step {request['step']}\", file=sys.stderr)  # this goes to `relaymesh logs hello`"
)
OWN_WRITES = {
    ("inbox_answer.py", 'sys.stderr.write("answer (? for help): ")'),
    ("inbox_answer.py", 'sys.stderr.write(f"{HELP}\\n")'),
    ("inbox_answer.py", 'sys.stderr.write(f"settled {printable(waiting.entry.envelope.id)}\\n")'),
    ("init.py", EXAMPLE_LOG),
    ("init.py", 'print(json.dumps({"greeting": f"Hello, {name}!"}))'),
    ("main.py", 'sys.stdout.write(f"relaymesh {__version__}\\n")'),
    ("main.py", 'sys.stdout.write(text + "\\n")'),
    ("reference.py", "sys.stdout.write(page())"),
    ("dlq.py", 'sys.stderr.write(f"\\rredriven {min(start + size, len(letters))} of {len(letters)}")'),
    ("dlq.py", 'sys.stderr.write("\\n")'),
    ("demo_worker.py", DEMO_PRINT),
}
"""Version, help, a generated page, a counter, a prompt, and programs of their own that speak JSON."""


def names(command: Any, above: str = "") -> Iterator[str]:
    below = getattr(command, "commands", None)
    if below is None:
        yield above
        return
    for name, each in below.items():
        yield from names(each, f"{above} {name}".strip())


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mesh whose every text is hostile, also where the edge refuses that today: old journals hold it."""
    path = tmp_path_factory.mktemp("hostile") / "mesh"
    extra = {HOSTILE: HOSTILE, "metadata": {HOSTILE: {HOSTILE: HOSTILE}}}
    told: dict[str, Any] = {
        "task": HOSTILE,
        "key": None,
        "correlation_id": HOSTILE,
        "tags": (HOSTILE,),
        "trace": HOSTILE,
        "type": HOSTILE,
        "origin": HOSTILE,
        "extra": json.dumps(extra).encode(),
    }
    data = json.dumps({HOSTILE: HOSTILE}).encode()
    with Mesh(path) as mesh:
        planner, coder = mesh.agent("planner"), mesh.agent("coder")
        letters = [Envelope(f"{id}{HOSTILE}", "default/planner", data, **told) for id in ("dead", "wait")]
        mesh._session.execute(Send([("default/coder", letters)], True))
        delivery = coder.receive(timeout=5)
        delivery.nack(HOSTILE, code=HOSTILE, retryable=False)
        submit_hostile(mesh)
        mesh.subscribe("order.*", "audit")
        mesh.publish("order.created", {HOSTILE: HOSTILE}, sender=planner.name)
    folder = server_folder(path)
    TokenFile(folder).create(["agent:coder"], label="label")
    book = TokenFile(folder).path
    book.write_text(book.read_text().replace('"label": "label"', f'"label": {json.dumps(HOSTILE)}'))
    line, _ = sealed({"event": HOSTILE, "at": 1, "user_agent": HOSTILE, "seq": 1, HOSTILE: HOSTILE}, GENESIS)
    (folder / CURRENT).write_bytes(line)
    return path


def submit_hostile(mesh: Mesh) -> None:
    """A task whose step has reported and failed with hostile words, and is a dead letter."""
    worker = mesh.agent("stepper")
    hostile = {"workflow": "hostile", "steps": {"a": {"agent": "stepper", "input": HOSTILE}}}
    mesh.put_workflow(hostile)
    mesh.put_schedule("hostile", "0 7 * * *", workflow=hostile, input={HOSTILE: HOSTILE})
    mesh.submit(hostile)
    delivery = worker.receive(timeout=5)
    delivery.report(HOSTILE)
    delivery.nack(HOSTILE, code=HOSTILE, retryable=False)


@pytest.fixture
def on_hostile(hostile: Path, empty: Cli, tmp_path: Path) -> tuple[Cli, dict[str, str]]:
    shutil.copytree(hostile, empty.path)
    empty("bus", "init", str(tmp_path / "bus"), "--agent", "coder")
    (tmp_path / "bus" / "dead" / f"{HOSTILE.replace(chr(0), '')}.reason.json").write_text("{}")
    [token] = TokenFile(server_folder(empty.path)).read()
    plan, bad, input = (tmp_path / name for name in ("plan.json", "bad.json", "input.json"))
    step = {"agent": "stepper", "input": HOSTILE}
    plan.write_text(json.dumps({"workflow": "w", "version": HOSTILE, "steps": {"a": step}}))
    bad.write_text(json.dumps({"workflow": "w", HOSTILE: HOSTILE, "steps": {"a": step}}))
    input.write_text(json.dumps({HOSTILE: HOSTILE}))
    [task] = empty.json("task", "list").rows
    files = {"{plan}": str(plan), "{bad plan}": str(bad), "{input}": f"@{input}", "{task}": task["id"]}
    return empty, {"{token}": token.id, "{bus}": str(tmp_path / "bus"), **files}


def test_every_command_is_run_here_or_says_why_not() -> None:
    assert set(names(typer.main.get_command(app))) == COMMANDS.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("as_json", [False, True])
def test_no_command_prints_a_control_character(
    on_hostile: tuple[Cli, dict[str, str]], name: str, as_json: bool
) -> None:
    cli, known = on_hostile
    words = [known.get(word, word) for word in COMMANDS[name]]
    ran = cli(*name.split(), *words, *(["--json"] if as_json else []))
    seen = ran.out + ran.err
    assert seen
    assert "USAGE" not in seen
    assert [c for c in seen if not c.isprintable() and c != "\n"] == []
    if as_json:
        for line in seen.split("\n")[:-1]:
            json.loads(line)


def test_dlq_show_keeps_what_it_escapes(on_hostile: tuple[Cli, dict[str, str]]) -> None:
    cli, _ = on_hostile
    assert r"\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\u202eevil" in cli("dlq", "show", "dead").out
    assert cli.json("dlq", "show", "dead").row["message"][HOSTILE] == HOSTILE


def test_a_terminal_sees_our_styles_and_no_others(on_hostile: tuple[Cli, dict[str, str]]) -> None:
    cli, _ = on_hostile
    code, seen = on_terminal("dlq", "show", "dead", "--dir", str(cli.path))
    assert code == 0
    assert "\x1b[2m" in seen
    ours = re.sub(r"\x1b\[[0-9;]*m", "", seen)
    assert [c for c in ours if not c.isprintable() and c != "\n"] == []
    assert "\x1b[31m" not in seen


def test_a_style_is_never_part_of_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    Output(json=False).line(Styled("\x1b[31m", "1"), "\x1b[0m")
    assert capsys.readouterr().out == "\\x1b[31m\\x1b[0m\n"


def test_escaped_json_is_the_same_value() -> None:
    text = json_text({HOSTILE: HOSTILE})
    assert text.isprintable()
    assert json.loads(text) == {HOSTILE: HOSTILE}


def test_only_the_output_layer_writes() -> None:
    """A command that printed by itself would print what others wrote as it is."""
    writing = re.compile(r"(?:sys\.std(?:out|err)\.write|(?<![\w.])print|typer\.s?echo|click\.s?echo)\(.*")
    found = {
        (path.name, match[0].strip())
        for path in Path(relaymesh.cli.__file__).parent.glob("*.py")
        if path.name != "output.py"
        for match in writing.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == OWN_WRITES
