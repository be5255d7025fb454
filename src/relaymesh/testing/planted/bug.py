"""A planted bug: one function of the product, replaced by a wrong one for a while."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

__all__ = ["Bug", "Original", "Reached", "Seam", "at", "bugs_of", "plant"]

Original = Callable[..., Any]
"""What a wrong function gets first: the right one."""
Owner = type | ModuleType | dict[Any, Any]


@dataclass
class Reached:
    """How often the wrong function ran: one that never did was not survived."""

    times: int = 0


@dataclass(frozen=True)
class Seam:
    """Where a function is found when it is called: in a class, a module, or a table."""

    owner: Owner
    name: Any

    @property
    def function(self) -> Any:
        return self._table[self.name]

    @property
    def _table(self) -> Any:
        return self.owner if isinstance(self.owner, dict) else vars(self.owner)

    def put(self, function: Any) -> None:
        if isinstance(self.owner, dict):
            self.owner[self.name] = function
        else:
            setattr(self.owner, self.name, function)

    @contextmanager
    def replaced(self, wrong: Original, reached: Reached) -> Iterator[None]:
        right = self.function
        is_property = isinstance(right, property)
        original: Any = right.fget if is_property else right

        @functools.wraps(original)
        def replacement(*arguments: Any, **options: Any) -> Any:
            reached.times += 1
            return wrong(original, *arguments, **options)

        self.put(property(replacement) if is_property else replacement)
        try:
            yield
        finally:
            self.put(right)


@dataclass(frozen=True)
class Bug:
    """broken: what is wrong, in a sentence. like: the past bug of a trusted system it stands for.

    first_seed: where the test begins to look, so that it is quick; the table in the docs counts from 0.
    """

    name: str
    layer: str
    broken: str
    like: str
    wrong: Original = field(repr=False)
    seams: tuple[Seam, ...] = field(repr=False)
    first_seed: int = 0

    @contextmanager
    def planted(self) -> Iterator[Reached]:
        """The product has this bug inside the block, and is itself again behind it, whatever happens."""
        reached = Reached()
        with ExitStack() as stack:
            for seam in self.seams:
                stack.enter_context(seam.replaced(self.wrong, reached))
            yield reached


def at(owner: Owner, *names: Any) -> Seam | tuple[Seam, ...]:
    """The seams of these names in a class, a module or a table."""
    seams = tuple(Seam(owner, name) for name in names)
    return seams[0] if len(seams) == 1 else seams


def plant(
    *seams: Seam | tuple[Seam, ...],
    broken: str,
    like: str = "",
    first_seed: int = 0,
) -> Callable[[Original], Bug]:
    """Make a wrong function a bug, named after it: it is called with the right one before the arguments."""
    flat = tuple(each for seam in seams for each in (seam if isinstance(seam, tuple) else (seam,)))

    def make(wrong: Original) -> Bug:
        layer = wrong.__module__.rpartition(".")[2]
        return Bug(wrong.__name__, layer, broken, like, wrong, flat, first_seed)

    return make


def bugs_of(module: ModuleType) -> tuple[Bug, ...]:
    """The bugs a module defines, in its order."""
    return tuple(each for each in vars(module).values() if isinstance(each, Bug))
