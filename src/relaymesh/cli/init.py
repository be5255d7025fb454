"""init: write relaymesh.toml for what is here."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from relaymesh.agents.team_file import DIRECTORY, FILE_NAME, team_of
from relaymesh.cli import options
from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.options import Globals
from relaymesh.cli.output import Output
from relaymesh.errors import Conflict

FOLDER = "agents"
WORKFLOW = "hello.yaml"
EXAMPLE = "hello.py"

_INTERPRETERS = {".py": "python3", ".sh": "sh", ".bash": "bash", ".js": "node", ".rb": "ruby", ".pl": "perl"}

_HEAD = """\
# A team of agents. `relaymesh up` starts it, and follows changes of this file: an agent restarts if its own
# table changed, the others go on. Every key and its default:
# docs/reference/team.md in the documentation of RelayMesh.

[mesh]
directory = {directory}    # the journal, the database, the logs
# port = 7717               # of the node, on this machine alone; without it, a free one
# graceful_timeout = "15s"  # how long `relaymesh down` may take
"""
_AGENT = """\

[agents.{name}]
kind = "script"             # a process for each step: JSON on stdin, its result on stdout
command = {command}
# capabilities = ["greet"]  # a workflow may ask for one in place of a name
# concurrency = 1           # steps at once
# time_limit = "10m"        # for one attempt
# secrets = {{ API_KEY = "env:API_KEY" }}
"""
_TAIL = """\

# Other kinds:
# [agents.indexer]
# kind = "worker"           # one process that stays: a JSON line in, a JSON line out
# command = ["python3", "indexer.py"]
# [agents.reviewer]
# kind = "person"           # no process: answer with `relaymesh answer`
"""
_SCRIPT = '''\
"""A script agent: it reads one JSON object from stdin, and what it prints is its result."""

import json
import sys

request = json.load(sys.stdin)
name = (request["content"] or {}).get("name", "world")
print(f"working on step {request['step']}", file=sys.stderr)  # this goes to `relaymesh logs hello`
print(json.dumps({"greeting": f"Hello, {name}!"}))
'''
_PLAN = """\
workflow: hello
input: {name: string}
steps:
  greet: {agent: hello, input: {name: "${{ input.name }}"}}
"""

Force = Annotated[bool, typer.Option("--force", help=f"Replace a {FILE_NAME} that is there.")]
Where = Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write it.")]


def init(
    context: typer.Context,
    folder: Where = Path(),
    force: Force = False,
    directory: options.Dir = None,
    json: options.Json = False,
) -> None:
    """Write relaymesh.toml for the scripts in agents/. If there are none, write a small example too."""
    given = context.obj if isinstance(context.obj, Globals) else Globals()
    output = Output(json=json or given.json)
    if folder.exists() and not folder.is_dir():
        raise UsageFailed(f"{folder} is no folder", hint="relaymesh init FOLDER")
    path = folder / FILE_NAME
    if path.exists() and not force:
        raise Conflict(f"{path} already exists", hint="edit it, or replace it with --force")
    folder.mkdir(parents=True, exist_ok=True)
    found = _scripts(folder)
    written = [] if found else _write_example(folder)
    data = directory or given.directory or Path(DIRECTORY)
    text = _text_for(found or [folder / FOLDER / EXAMPLE], folder, data)
    _, problems = team_of(text.encode(), path)
    assert not problems, problems
    path.write_text(text, encoding="utf-8")
    names = [_name(each) for each in found] or [_name(Path(EXAMPLE))]
    if output.json:
        output.object(
            {"file": str(path), "agents": names, "written": [str(each) for each in (path, *written)]}
        )
        return
    for each in (path, *written):
        output.line(f"wrote {each}")
    output.line("")
    output.line("next:  relaymesh up            starts the node and the agents; Ctrl-C stops them")
    output.line("and in another terminal:")
    if written:
        output.line("""       relaymesh workflow run hello.yaml --input '{"name": "Ada"}' --watch""")
    else:
        output.line(f"       relaymesh send {names[0]} hello    a first message for it")


def _scripts(folder: Path) -> list[Path]:
    """What looks like an agent: a file in agents/ that is executable, or whose interpreter is known."""
    inside = folder / FOLDER
    if not inside.is_dir():
        return []
    found: dict[str, Path] = {}
    for path in sorted(inside.iterdir()):
        if path.is_file() and _name(path) and not path.name.startswith((".", "_")) and _command(path, folder):
            found.setdefault(_name(path), path)
    return list(found.values())


def _name(path: Path) -> str:
    """The name of the agent: letters, digits, `-` and `_` alone, so that it needs no quotes in the file."""
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in path.stem).strip("-")
    return name[:64]


def _command(path: Path, folder: Path) -> list[str]:
    """How it is started; empty: this is not known."""
    inside = path.relative_to(folder).as_posix()
    interpreter = _INTERPRETERS.get(path.suffix)
    if interpreter == "python3":
        return [_python(), inside]
    if interpreter is not None and shutil.which(interpreter):
        return [interpreter, inside]
    if path.suffix in _INTERPRETERS or not os.access(path, os.X_OK):
        return []
    return [f"./{inside}"]


def _python() -> str:
    """By name where that is Python 3; else the Python that runs this."""
    return "python3" if shutil.which("python3") else sys.executable


def _text_for(scripts: list[Path], folder: Path, data: Path) -> str:
    agents = [_AGENT.format(name=_name(each), command=_quoted(_command(each, folder))) for each in scripts]
    return "".join([_HEAD.format(directory=_quoted_text(str(data))), *agents, _TAIL])


def _quoted(words: list[str]) -> str:
    """A TOML list of texts."""
    return f"[{', '.join(_quoted_text(word) for word in words)}]"


def _quoted_text(text: str) -> str:
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\u{ord(character):04x}"


def _write_example(folder: Path) -> list[Path]:
    """A script and a workflow. What is there already stays."""
    (folder / FOLDER).mkdir(exist_ok=True)
    written: list[Path] = []
    for path, text in ((folder / FOLDER / EXAMPLE, _SCRIPT), (folder / WORKFLOW, _PLAN)):
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written
