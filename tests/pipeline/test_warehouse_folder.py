"""Where a warehouse may be: a folder of a file system, refused before Spark starts if it is anything else."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import pytest

from relaymesh.cli.failure import Exit
from relaymesh.cli.main import main
from relaymesh.errors import InvalidSettings
from relaymesh.pipeline.tables.warehouse_folder import folder_of

ELSEWHERE = ["s3://bucket/x", "s3a:///x", "S3://bucket", "hdfs://host:8020/x", "gs:/bucket", "file:///tmp/x"]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from relaymesh import Mesh

    with Mesh(tmp_path / "data") as mesh:
        mesh.agent("coder")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("RELAYMESH_JAVA", str(tmp_path))  # a command that reaches Spark fails with other words
    return tmp_path / "data"


@pytest.mark.parametrize(
    "command",
    [
        "pipeline run",
        "pipeline follow",
        "pipeline compact",
        "pipeline status",
        "report build",
        "report tables",
    ],
)
def test_a_warehouse_in_an_object_store_is_refused_by_name_and_leaves_no_folder(
    command: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main([*command.split(), "--dir", str(data), "--warehouse", "s3://bucket/x"])
    [line] = capsys.readouterr().err.splitlines()
    assert (code, "the warehouse s3://bucket/x is a URL" in line) == (Exit.USAGE, True), line
    assert list(Path.cwd().iterdir()) == []
    assert not (data / "tables").exists()


@pytest.mark.parametrize("url", ELSEWHERE)
def test_the_same_from_python_as_text_and_as_a_path(url: str, data: Path) -> None:
    from relaymesh.pipeline.runs.settings import PipelineSettings
    from relaymesh.pipeline.tables.store import TableStore

    for given in (url, Path(url)):
        with pytest.raises(InvalidSettings, match="is a URL"):
            TableStore.open(given)
    with pytest.raises(InvalidSettings, match="is a URL"):
        PipelineSettings(directories=(data,), warehouse=Path(url))


def test_a_staging_folder_of_the_writer_is_no_url_either() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import StringType, StructField, StructType

    from relaymesh.pipeline.source.writer import WriterOptions

    schema = StructType([StructField("to", StringType()), StructField("content", StringType())])
    with pytest.raises(InvalidSettings, match="s3://bucket/x is a URL"):
        WriterOptions.parse({"path": "data", "staging": "s3://bucket/x"}, schema, overwrite=False)


@pytest.mark.parametrize("name", ["tables", "a:b", "./s3:x", "/tmp/s3:/x", "C:/tables"])
def test_other_names_are_folders(name: str) -> None:
    assert folder_of(name, "the warehouse") == Path.cwd() / name


@pytest.mark.parametrize(
    "inside", [".", "journal", "journal/deep/er", "archive", "checkpoints", "lock", "..", "../.."]
)
def test_a_warehouse_among_the_files_of_a_mesh_is_refused(
    inside: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(data.rglob("*"))
    code = main(["pipeline", "run", "--dir", str(data), "--warehouse", str(data / inside)])
    [line] = capsys.readouterr().err.splitlines()
    assert (code, f"--warehouse {quote(str(data.resolve() / 'tables'))}" in line) == (Exit.USAGE, True), line
    assert sorted(data.rglob("*")) == before


def test_the_files_of_another_mesh_are_no_place_either(data: Path, tmp_path: Path) -> None:
    from relaymesh import Mesh
    from relaymesh.pipeline.runs.settings import PipelineSettings

    Mesh(tmp_path / "other").close()
    (tmp_path / "link").symlink_to(tmp_path / "other" / "journal")
    for place in (tmp_path / "other" / "journal", tmp_path / "link" / "x"):
        with pytest.raises(InvalidSettings, match="among the files of the mesh"):
            PipelineSettings(directories=(data,), warehouse=place)
    for apart in (data / "tables", data / "my" / "own", tmp_path / "other" / "tables", tmp_path / "new"):
        assert PipelineSettings(directories=(data,), warehouse=apart).warehouse == apart
