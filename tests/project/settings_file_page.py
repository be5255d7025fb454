"""The page docs/reference/settings-file.md, made from the table of settings."""

from __future__ import annotations

from relaymesh.wire.parameters import PARAMETERS, Parameter

HEAD = "| setting | default | range | what it does, and from when on | raising it costs |"


def settings_file_page(generated: str) -> str:
    """The one table of the settings file, and what goes before what."""
    lines = [SETTINGS_FILE_INTRODUCTION.format(generated=generated), ""]
    for place, heading in PLACES.items():
        rows = [row for row in PARAMETERS if row.place == place]
        lines += [
            f"## {heading}",
            "",
            "| setting | default | range | what it does, and from when on | raising it costs |",
        ]
        lines += ["|---|---|---|---|---|"]
        lines += [_row(row) for row in rows]
        lines.append("")
    lines += [SETTINGS_FILE_END]
    return "\n".join(lines)


def _row(row: Parameter) -> str:
    cells = (f"`{row.name}`", _said(row.default), _range(row), row.effect, row.cost)
    return f"| {' | '.join(cells)} |"


def _said(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.15g}"


def _range(row: Parameter) -> str:
    return "true, false" if row.kind == "flag" else f"{_said(row.least)} to {_said(row.most)}"


PLACES = {
    "node": "In every node",
    "server": "In a node that serves",
    "workers": "In programs that run handlers",
    "mesh": "Inactive until several nodes form a mesh",
}
SETTINGS_FILE_INTRODUCTION = """\
# The settings file

{generated}

`relaymesh-settings.json` in the data directory holds settings of a node that change while it runs. It is
one JSON object:

```json
{{"max_attempts": 5, "thread_pool_max": 16, "ackTimeout": 60000}}
```

- **Whole or not at all.** Every name and value is checked before anything changes. A name that is not in
  the tables below, a value of another type or out of its range, or two that contradict each other: the file
  is refused, the error names the setting, and the values that were in force stay. A running node reports a
  wrong file once: in its log, in `relaymesh settings show` and in the audit log. A node does not start on a
  wrong file, except one that `relaymesh up` has to start again: it goes on with the values that were in
  force. At most 64 KiB; a link to a regular file is followed.
- **When it is read.** At the start; when a person asks for it with `relaymesh settings reload` or `POST
  /v1/settings/reload`; and when a running node finds that it is another file, which it looks for every 5 s.
  Programs that run handlers ask their node every 5 s.
- **What goes before it.** The environment, then options of the command line and values that a program chose
  in code, then `[settings]` of the `relaymesh.toml` that `relaymesh serve --config` names, then this file,
  then the default. A variable has the name in capitals behind `RELAYMESH_`: `RELAYMESH_MAX_ATTEMPTS`,
  `RELAYMESH_ACK_TIMEOUT`, `RELAYMESH_DEFAULT_TTL`. An option that is given counts also at its default; a
  value in code counts if it is not the default. Settings of a mailbox, and what a workflow says itself, go
  before all of them.
- **What it changes.** New grants, messages and tasks. A task keeps attempts, lease, backoff and window that
  it was submitted with: they are in its record, so a replay and a `task rerun` see the same. Steps that are
  added later take attempts and lease that are in force then.
- **Looking.** `relaymesh settings show` lists every value, where it comes from and whether it is active;
  `diff` shows what differs; `history` (or `settings-history --limit N`) lists the last 200 times that
  settings were read, with the names that changed and never a value. The audit log has a line
  `settings.loaded` or `settings.refused` with `changed_fields` for each.
"""
SETTINGS_FILE_END = """\
`thread_pool_core/max` of earlier documents are `thread_pool_core` and `thread_pool_max` here. A client that
only sends learns a larger `payload_max_bytes` when it connects again. The file is not part of a mirror or a
backup of the journal.
"""
