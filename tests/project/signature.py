"""What a function says of its arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator


def parameters(call: Callable[..., object]) -> Iterator[tuple[str, str, str, str]]:
    """(name, type, default, words) of a function whose docstring has a `name: words` list."""
    said = inspect.getdoc(call) or ""
    found = dict(re.findall(r"(?m)^([a-z_]+): ((?:.+)(?:\n    .+)*)", said))
    for name, each in inspect.signature(call).parameters.items():
        if name != "self":
            default = "" if each.default is inspect.Parameter.empty else repr(each.default)
            yield name, str(each.annotation), default, one_line(found.get(name, ""))


def one_line(text: str) -> str:
    return " ".join(text.split())
