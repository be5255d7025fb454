"""Any one file of a warehouse is harmed between two runs: it is repaired, or named; never published over.

`make proof` tries every file with and without new events: `python -m tests.pipeline.runs.any_file`. Here each
kind of file is tried, and what needs Spark for seconds only once.
"""

from __future__ import annotations

import re
import shlex
import shutil
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from relaymesh.errors import MeshError
from tests.pipeline.runs.any_file import Harm, OnTrial, flipped_at, removed, renumbered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trial(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> OnTrial:
    return OnTrial(spark, tmp_path_factory.mktemp("trial"))


def kinds(trial: OnTrial) -> list[str]:
    """The last file of each kind: names that differ in numbers alone are of one kind."""
    files = [file for file in trial.files() if not file.startswith(("tables/", "runs/", "views"))]
    files = [file for file in files if not file.endswith((".crc", "_SUCCESS"))]
    alike = sorted(files, key=lambda file: (re.sub(r"[0-9a-f]*\d[0-9a-f]*", "#", file), file))
    groups = groupby(alike, key=lambda file: re.sub(r"[0-9a-f]*\d[0-9a-f]*", "#", file))
    return [list(own)[-1] for _, own in groups]


def test_the_trial_covers_every_kind_of_file(trial: OnTrial) -> None:
    told = " ".join(kinds(trial))
    for name in (
        "bronze/batch=c-",
        "bronze/batch=0",
        "bronze/generation.json",
        "bronze/log/",
        "checkpoints/bronze/commits/",
        "checkpoints/bronze/offsets/",
        "checkpoints/bronze/metadata",
        " manifest.json",
        "manifests/",
        "sources.json",
    ):
        assert name in told, name


def test_the_next_run_repairs_it_or_refuses_and_names_it(trial: OnTrial) -> None:
    verdicts = {
        (file, harm.__name__): trial.tried(file, harm) for file in kinds(trial) for harm in trial.harms(file)
    }
    refused = {file for (file, _), verdict in verdicts.items() if verdict.startswith("refused")}
    for name in ("part-", "generation.json", "log/", "manifest.json", "sources.json"):
        assert any(name in file for file in refused), name
    assert verdicts["manifest.json", "removed"] == "repaired"


def test_a_table_that_was_harmed_is_built_anew(trial: OnTrial) -> None:
    file = next(file for file in trial.files_published() if file.startswith("tables/entries"))
    assert trial.tried(file, flipped_at(0.5)) == "repaired"


@pytest.mark.parametrize("kind", ["offsets", "commits"])
@pytest.mark.parametrize("harm", [removed, flipped_at(0.5), renumbered])
def test_new_events_do_not_hide_a_harmed_checkpoint(trial: OnTrial, kind: str, harm: Harm) -> None:
    files = [file for file in trial.files() if f"bronze/{kind}/" in file and Path(file).name.isdecimal()]
    newest = max(files, key=lambda file: int(Path(file).name))
    trial.tried(newest, harm, more=True)


def test_an_edit_that_puts_the_time_back_is_named_by_verify(trial: OnTrial) -> None:
    trial.restore()
    log = [file for file in trial.files() if file.startswith("bronze/") and file.endswith(".json")]
    for file in (*log, *trial.files_of_bronze(), *trial.files_published(), "manifest.json", "sources.json"):
        for place in (0.2, 0.5, 0.8):
            trial.edited_behind_its_time(file, place)


def test_a_backfill_does_not_pass_over_a_missing_file(trial: OnTrial) -> None:
    from datetime import date

    trial.restore()
    victim = trial.files_of_bronze()[0]
    (trial.root / victim).unlink()
    before = trial.rows()
    with pytest.raises(MeshError, match=Path(victim).name):
        trial.pipeline().backfill(date(2026, 3, 1), date(2026, 3, 9))
    with pytest.raises(MeshError, match=Path(victim).name):
        trial.pipeline().compact()
    assert trial.rows() == before


def test_the_advice_to_move_bronze_away_ends_with_the_tables_of_a_new_warehouse(
    trial: OnTrial, tmp_path: Path
) -> None:
    """Followed to the letter: what the hint names is moved, and `run` is run. manifest.json stays."""
    trial.restore(more=True)
    victim = trial.files_of_bronze()[-1]
    (trial.root / victim).unlink()
    with pytest.raises(MeshError) as refused:
        trial.pipeline().run()
    [moved] = re.findall(r"move (.+ and .+) away, then relaymesh pipeline run", refused.value.hint)
    bronze, _, checkpoints = shlex.split(moved)
    for path in map(Path, (bronze, checkpoints)):
        shutil.move(path, tmp_path / path.name)
    assert trial.pipeline().run().status == "published"
    rows = trial.rows()
    shutil.rmtree(trial.root)
    trial.pipeline().run()
    assert trial.rows() == rows
