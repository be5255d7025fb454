"""A document as YAML text, which `relaymesh.plans.reading` reads back as the same document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["write_yaml"]

WIDTH = 120


class _Dumper(yaml.SafeDumper):
    """Writes a value in full each time it occurs, because anchors and aliases are refused when a plan is
    read."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML asks for each value
        return True


def write_yaml(document: Mapping[str, Any]) -> str:
    text: str = yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=WIDTH)
    return text
