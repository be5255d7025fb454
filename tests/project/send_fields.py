"""The table of the fields of `send`: names, types and words from `send` itself, bounds from the checks."""

from __future__ import annotations

from relaymesh.kernel.address import NAME_LENGTH_MAX
from relaymesh.kernel.bounds import RETRIES_MAX, SECONDS_MAX, TEXT_LENGTH_MAX
from relaymesh.sdk.agent import Agent
from relaymesh.wire.content import DEPTH_MAX
from relaymesh.wire.envelope import DELAY_MS_MAX, ID_LENGTH_MAX, TAGS_MAX
from relaymesh.wire.extra import EXTRA_NAME_LENGTH_MAX, EXTRA_NAMES_MAX
from tests.project.signature import parameters

NAME = f"1 to {NAME_LENGTH_MAX} letters, digits and `. _ @ + -`; the namespace as well"
TEXT = f"1 to {TEXT_LENGTH_MAX} printable characters"

BOUNDS = {
    "to": NAME,
    "content": f"`payload_bytes_max` bytes (10 MiB), {DEPTH_MAX} levels deep",
    "id": f"1 to {ID_LENGTH_MAX} printable characters",
    "type": f"1 to {ID_LENGTH_MAX} printable characters; no control frame such as `ack`",
    "priority": "1 to 5",
    "task": TEXT,
    "key": TEXT,
    "delay_ms": f"0 to {DELAY_MS_MAX:,}; more is cut to that",
    "ttl": f"0 to {DELAY_MS_MAX // 1000:,}; more is cut to that",
    "correlation_id": TEXT,
    "reply_to": NAME,
    "requires_ack": "True or False",
    "tags": f"at most {TAGS_MAX}, each {TEXT}",
    "max_retries": f"0 to {RETRIES_MAX:,}",
    "timeout": f"0 to {SECONDS_MAX:,.0f}; less or more is cut to that",
    "trace": TEXT,
    "extra": f"{EXTRA_NAMES_MAX} names of 1 to {EXTRA_NAME_LENGTH_MAX} characters, none that the mesh writes;"
    " in bytes as the content",
}


def send_table() -> list[str]:
    lines = ["| field | type | default | bounds | what it is |", "|---|---|---|---|---|"]
    for name, kind, default, words in parameters(Agent.send):
        row = (f"`{name}`", f"`{kind}`", f"`{default}`" if default else "required", BOUNDS[name], words)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return lines
