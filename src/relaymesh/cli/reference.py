"""The page docs/reference/cli.md, made from the commands themselves.

python -m relaymesh.cli.reference > docs/reference/cli.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import typer

from relaymesh.cli.failure import CODES, EXIT_CODES, MEANINGS, Exit
from relaymesh.cli.main import app
from relaymesh.wire.operations import OPERATIONS, RETURNS

INTRODUCTION = """\
# The command line

Made by `python -m relaymesh.cli.reference`: change the commands, not this page.

- **Where.** `--dir PATH`, else `RELAYMESH_HOME`, else the directory that a `relaymesh.toml` in this folder
  names, else `~/.relaymesh`. `--dir` and `--json` may come before or after the command.
- **Output.** Data goes to stdout; notes, questions, progress and errors to stderr. `--json` prints one JSON
  object per line, one for each row of the table, with the same fields and nothing shortened. `NO_COLOR` turns
  colour off; in a pipe there is no colour and nothing is cut.
- **Ids.** On a narrow terminal a long id is shortened to its unique part (`…a4b1-7203-bd82…`).
  `dlq show`, `dlq redrive` and `dlq purge` accept such a part if it fits one message only.
- **Content.** A JSON object or array is sent as JSON; everything else is text, even a number. With
  `--content-json` the content must be JSON of any kind; with `--content-text` it is text. `-` reads stdin,
  without the newline at its end.
- **Reading and changing.** `inbox`, `topic list`, `dlq list`, `dlq show`, `journal` and `doctor` take no
  lock: they work while another process has the directory open, and show what is synced. Commands that change
  something open the directory, such as `send`, `inbox --take`, `topic pub`, `dlq redrive`, `dlq purge`, and
  all `task` and `workflow` commands. If `relaymesh serve` has the directory, they use it; if another program
  has it, they fail with exit code 5. `store rebuild`, `journal restore` and `torture` need the directory for
  themselves. `workflow check` and `workflow graph` of a file need no mesh.
- **Confirmation.** A command that changes many messages, or cannot be undone, first shows the count and
  samples, then asks. Without a terminal it never asks: it fails and names `--yes`.
- **Times.** `--since` takes a span (`30m`, `2h`, `7d`) or a time in ISO 8601, in UTC unless the time has an
  offset.
"""

ERRORS = """\
## Errors and exit codes

An error is one line on stderr, `error: CODE: message | hint: … | retryable: yes`, and with `--json` an object
with the fields `code`, `message`, `hint` and `retryable`. A closed pipe (`| head`) is not an error.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, "## Commands\n"]
    parts += [_command_text(path, command) for path, command in commands()]
    parts += [ERRORS, _exit_table(), _operations()]
    return "\n".join(parts)


def commands() -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that call it."""
    return _walk("relaymesh", typer.main.get_command(app))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in inner:
        yield from _walk(f"{path} {name}", inner[name])


def _command_text(path: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option"]
    usage = " ".join([path, *(_argument(param) for param in arguments)])
    lines = [f"### `{usage}`", "", inspect.cleandoc(command.help), ""]
    lines += ["| option | meaning |", "|---|---|"]
    lines += [f"| {_cell(_named(param))} | {_cell(_meaning(param))} |" for param in [*arguments, *options]]
    return "\n".join([*lines, ""])


def _argument(param: Any) -> str:
    name = param.metavar or param.name.upper()
    several = f"{name}…" if param.nargs == -1 else name
    return several if param.required else f"[{several}]"


def _named(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"`{param.metavar or param.name.upper()}`"
    value = "" if param.is_flag or not param.metavar else f" {param.metavar}"
    return f"`{', '.join(param.opts)}{value}`"


def _meaning(param: Any) -> str:
    default = param.default
    if callable(default) or default in (None, False, (), ""):
        return str(param.help)
    return f"{param.help} Default: `{default}`."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _exit_table() -> str:
    lines = ["| exit code | meaning | errors |", "|---|---|---|"]
    for code in Exit:
        names = sorted({_error_name(kind) for kind, exit in EXIT_CODES.items() if exit == code})
        lines.append(f"| {code.value} | {MEANINGS[code]} | {', '.join(names)} |")
    return "\n".join([*lines, ""])


def _error_name(kind: type[BaseException]) -> str:
    if kind is OSError:
        return "an errno such as `ENOSPC`"
    return f"`{CODES.get(kind) or getattr(kind, 'code', kind.__name__)}`"


def _operations() -> str:
    names = ", ".join(f"`{name}`" for name in [*OPERATIONS.values(), *RETURNS.values()])
    return (
        "## Operations of `journal cat`\n\n"
        f"{names}.\n\n"
        "`PUBLISH` is one event whatever the number of subscriptions; its mailbox column names the topic.\n"
        "`NACK`, `LEASE_EXPIRED` and `RECLAIM` (the holder's process ended) count an attempt; `DEFER` and\n"
        "`RELEASE` do not. Ids come from the 200,000 events before `--from` and all behind it; of older\n"
        "messages only `message_sequence` is known.\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
