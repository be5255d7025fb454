"""What Spark raises, as one line: a Java error is a hundred lines, of which one or two say what happened."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from relaymesh import errors
from relaymesh.errors import MeshError

__all__ = ["SparkFailed", "one_line", "spark_failures"]

LENGTH_MAX = 500

_CLASS = re.compile(r"^[:\s]*(?:[\w$]+\.)+[\w$]+: ")
_OURS = re.compile(r"^relaymesh\.(?:[\w]+\.)*(\w+): (.*)$")
_NOISE = re.compile(r"\s*SQLSTATE: \w+|\[\w+(?:\.\w+)*\]\s*")
_HINTS = (
    (re.compile(r"/bronze/batch="),
     "restore the file from a copy, or move the warehouse away: a run reads anew what the journals have"),
    (re.compile(r"(?:FAILED_READ_FILE|not a Parquet file|does not exist|No such file).*/tables/\w+/run_id="),
     "restore the file from a copy, or move manifest.json away: a run makes the tables anew from bronze"),
    (re.compile(r"Permission denied|AccessControl|Mkdirs failed|not a directory|Unable to c(?:reate|lear)"),
     "check who owns the folder and that this user may write to it, then run again"),
    (re.compile(r"No space left"), "make room on the disk, then run again"),
)  # fmt: skip


class SparkFailed(MeshError):
    """Spark could not do its part. Nothing was published."""

    code = "SPARK_FAILED"
    default_hint = "the next run goes on where this one ended"


@contextmanager
def spark_failures() -> Iterator[None]:
    """Turn errors of Spark, Java and Arrow into `SparkFailed`, and ours that crossed Spark back into ours."""
    try:
        yield
    except (Py4JError, PySparkException, pa.ArrowException) as error:
        if isinstance(error, OSError):  # Arrow's, which names its file like any other
            raise
        raise one_line(str(error)) from error


def one_line(text: str) -> MeshError:
    """The error that a text of Spark is about."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        ours = _OURS.match(line)
        if ours is not None:
            return _own(ours[1], ours[2])
    told = next((line for line in lines if not line.startswith("An error occurred while calling")), "")
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    parts = [_plain(line) for line in (told, *causes[-1:])]
    message = ": ".join(dict.fromkeys(part.rstrip(".") for part in parts if part))
    hint = next((hint for found, hint in _HINTS if found.search(" ".join([told, *causes]))), None)
    return SparkFailed(f"Spark failed: {message or 'it gave no reason'}"[:LENGTH_MAX], hint=hint)


def _plain(line: str) -> str:
    return _NOISE.sub("", _CLASS.sub("", line)).strip()


def _own(name: str, words: str) -> MeshError:
    """`NotFound: there is no mesh in x (name its directory)`, as an error's `str` has it."""
    kind = getattr(errors, name, None)
    message, _, hint = words.removesuffix(")").partition(" (") if words.endswith(")") else (words, "", "")
    if isinstance(kind, type) and issubclass(kind, MeshError):
        return kind(message, hint=hint or None)
    return SparkFailed(words[:LENGTH_MAX])
