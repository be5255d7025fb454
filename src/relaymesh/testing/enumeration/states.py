"""The states in which a power loss may leave a directory, at one moment of a recording."""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import xxhash

from relaymesh.testing.enumeration.choices import boundaries, paged, torn
from relaymesh.testing.enumeration.platter import Platter, after, rename
from relaymesh.testing.enumeration.recording import Named, Promise, RecordingDisk, Resized, Wrote

__all__ = ["CrashState", "Moment", "Thinning", "crash_states", "digest", "moments"]

NAMES_ALL_MAX = 5
"""Of so many unsynced names all subsets are tried; of more, each prefix, each one lost and each one alone."""
BACKGROUNDS_MAX = 6
SEGMENT_HEADER_BYTES = 96
UNFINISHED = ".new"
UNFINISHED_STRIDE = 64
"""A file under an unfinished name never counts: its bytes are tried less densely."""


@dataclass(frozen=True, slots=True)
class Thinning:
    """Every `stride`-th byte prefix and page choice; `seed` picks other samples where not all are tried."""

    stride: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """The disk behind call number `call` of a recording, and what users knew then. `changed`: a file."""

    call: int
    platter: Platter
    promise: Promise
    changed: int | None


@dataclass(frozen=True, slots=True)
class CrashState:
    files: dict[str, bytes]
    digest: int


def moments(recording: RecordingDisk) -> list[Moment]:
    """Before the first call, and behind each."""
    platter = Platter(recording.at_first, recording.first_numbers)
    found = [Moment(0, _frozen(platter), recording.promises[0], None)]
    for index, call in enumerate(recording.calls):
        platter.apply(call)
        changed = call.file if isinstance(call, Wrote | Resized) else None
        found.append(Moment(index + 1, _frozen(platter), recording.promises[index + 1], changed))
    return found


def _frozen(platter: Platter) -> Platter:
    twin = copy.copy(platter)
    twin.names, twin.durable = dict(platter.names), dict(platter.durable)
    twin.changes = {file: list(changes) for file, changes in platter.changes.items()}
    twin.renames, twin.lingering = list(platter.renames), list(platter.lingering)
    return twin


def digest(files: Iterable[tuple[str, bytes]]) -> int:
    """A number for a whole directory; files are added up, so that one changed file is cheap to count anew."""
    return sum(_of_file(name, content) for name, content in files) % 2**64


def _of_file(name: str, content: bytes) -> int:
    return int(xxhash.xxh3_64_intdigest(content, seed=_seed(name)))


@functools.cache
def _seed(name: str) -> int:
    return int(xxhash.xxh32_intdigest(name.encode()))


def crash_states(moment: Moment, pages: tuple[int, ...], thinning: Thinning) -> Iterator[CrashState]:
    """Not all are different from one another, nor from those of other moments: compare digests."""
    platter = moment.platter
    rng = random.Random(f"{moment.call}:{thinning.seed}")
    every_name = _names_after(platter, platter.renames)
    for names in _names(platter):
        for contents in _backgrounds(platter, None):
            files = _files(names, contents)
            yield CrashState(files, digest(files.items()))
    if moment.changed is None:
        return
    focus = moment.changed
    variants = list(_contents(platter, focus, every_name, pages, thinning, rng))
    for names in [every_name] if focus not in platter.names.values() else [every_name, dict(platter.names)]:
        name = next((name for name, number in names.items() if number == focus), None)
        if name is None:
            continue
        for contents in _backgrounds(platter, focus):
            files = _files(names, contents)
            others = digest(files.items()) - _of_file(name, files[name])
            for variant in variants:
                yield CrashState({**files, name: variant}, (others + _of_file(name, variant)) % 2**64)
        if names == platter.names:
            return


def _contents(
    platter: Platter,
    focus: int,
    names: dict[str, int],
    pages: tuple[int, ...],
    thinning: Thinning,
    rng: random.Random,
) -> Iterator[bytes]:
    """What may have become of the file that was changed last."""
    content, changes = platter.before(focus), platter.changes[focus]
    name = next((name for name, number in names.items() if number == focus), UNFINISHED)
    unfinished = name.endswith(UNFINISHED)
    stride = max(thinning.stride, UNFINISHED_STRIDE) if unfinished else thinning.stride
    yield from boundaries(content, changes[-3:] if name == "mark" else changes)
    if name == "mark" or unfinished:
        yield from torn(content, changes, stride)
        return
    stale = _stale(platter, focus)
    yield from torn(content, changes, stride, stale[SEGMENT_HEADER_BYTES:])
    for page_bytes in pages:
        choices = paged(content, changes, page_bytes, stale, rng)
        yield from itertools.islice(choices, rng.randrange(stride), None, stride)


def _stale(platter: Platter, focus: int) -> bytes:
    """What may lie in blocks that were given to this file and not yet written: the oldest segment's bytes."""
    segments = [name for name, number in platter.names.items() if name.endswith(".rmj") and number != focus]
    return platter.before(platter.names[min(segments)]) if segments else b"\xa5"


def _backgrounds(platter: Platter, focus: int | None) -> Iterator[dict[int, bytes]]:
    """The other files: each without its unsynced changes, with all of them, and with all but the last."""
    choices: list[list[tuple[int, bytes]]] = []
    for file, changes in platter.changes.items():
        if file != focus:
            versions = boundaries(platter.before(file), changes)
            few = dict.fromkeys((versions[-1], versions[0], versions[-2]))
            choices.append([(file, version) for version in few])
    for chosen in itertools.islice(itertools.product(*choices), BACKGROUNDS_MAX):
        contents = {**platter.durable, **dict(chosen)}
        if focus is not None:
            contents[focus] = after(platter.before(focus), platter.changes.get(focus, ()))
        yield contents


def _files(names: dict[str, int], contents: dict[int, bytes]) -> dict[str, bytes]:
    return {name: contents.get(number, b"") for name, number in names.items()}


def _names(platter: Platter) -> Iterator[dict[str, int]]:
    """Which names are there: any of the unsynced changes may have survived."""
    for kept in _kept(platter.renames):
        names = _names_after(platter, kept)
        yield names
        # A rename between folders is two entries; the new one may be durable before the old one is gone.
        across = [each for each in kept if each.old and each.new and _moves(each.old, each.new)]
        for each in [*across, *platter.lingering]:
            if each.old:
                yield {**names, each.old: each.file}


def _kept(renames: list[Named]) -> Iterator[list[Named]]:
    count = len(renames)
    if count <= NAMES_ALL_MAX:
        for size in range(count, -1, -1):
            yield from (list(each) for each in itertools.combinations(renames, size))
        return
    yield from (renames[:length] for length in range(count + 1))
    yield from (renames[:at] + renames[at + 1 :] for at in range(count))
    yield from ([each] for each in renames)


def _names_after(platter: Platter, kept: list[Named]) -> dict[str, int]:
    names = dict(platter.names)
    for each in kept:
        rename(names, each)
    return names


def _moves(old: str, new: str) -> bool:
    return old.rpartition("/")[0] != new.rpartition("/")[0]
