"""CONTENT as it is given on a command line or stdin."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from relaymesh.cli.failure import UsageFailed
from relaymesh.cli.output import Output
from relaymesh.errors import InvalidEnvelope
from relaymesh.wire.content import check_json


def read_content(given: str, output: Output, *, as_json: bool, as_text: bool) -> Any:
    """A JSON object or array is sent as such; everything else is text, unless an option says otherwise.

    A number stays text, because `007` and `1e3` are names as often as they are numbers. From stdin one
    newline at the end is dropped: `echo` and editors put it there.
    """
    if as_json and as_text:
        raise UsageFailed(
            "--content-json and --content-text exclude each other", hint="leave one of them out"
        )
    text = _stdin() if given == "-" else given
    if as_text:
        return text
    if as_json:
        return parse_json(text, "content")
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return parse_json(text, "content")
    except InvalidEnvelope as error:
        output.note(f"{error.message}: it is sent as text (--content-text says that this is meant)")
        return text


def parse_json(text: str, what: str) -> Any:
    """A value of sound JSON; raises `InvalidEnvelope`."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise InvalidEnvelope(f"{what} is not valid UTF-8") from None
    try:
        return msgspec.json.decode(check_json(data))
    except InvalidEnvelope as error:
        raise InvalidEnvelope(error.message.replace("content", what, 1)) from None


def _stdin() -> str:
    data = sys.stdin.buffer.read()
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise InvalidEnvelope(
            f"stdin is not valid UTF-8 at byte {error.start}",
            hint="send bytes from Python, or as base64 text",
        ) from None
