"""How a table's rows are written and read: only this differs between parquet, delta and iceberg.

The manifest stays the point of publishing for all of them. Parquet files are new files of this run; Delta and
Iceberg make a version of their own, and the manifest names it: a reader sees the tables of one run together.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from relaymesh.errors import InvalidSettings
from relaymesh.pipeline.tables.footer import checksum
from relaymesh.pipeline.tables.manifest import ROWS_PER_FILE, File, Part, PublishedTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FORMATS", "NO_DAY", "Delta", "Iceberg", "Parquet", "TableFormat", "Written", "format_of"]

NO_DAY = "unknown"
"""The day of rows whose day is null."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What one write left behind."""

    parts: list[Part] = []
    location: str | None = None
    snapshot: str | None = None
    rows: int | None = None
    """Rows of the whole table, where the format counts them; else the parts do."""


class TableFormat(Protocol):
    """The calls that differ."""

    name: str

    def require(self, spark: SparkSession) -> None:
        """Raise an error that names the package when Spark has no such format."""

    def write(
        self, df: DataFrame, table: str, run_id: str, day_column: str | None, days: Sequence[str] | None
    ) -> Written:
        """Write all rows, or with `days` the rows of those days in place of what the table had for them."""

    def read(self, spark: SparkSession, table: PublishedTable) -> DataFrame: ...


class Parquet:
    """Immutable files, `tables/<table>/run_id=<run>/day=<day>/…`. The default: needs nothing."""

    name = "parquet"

    def __init__(self, root: Path) -> None:
        self._root = root

    def require(self, spark: SparkSession) -> None:
        """Spark always has it."""

    def write(
        self, df: DataFrame, table: str, run_id: str, day_column: str | None, days: Sequence[str] | None
    ) -> Written:
        from pyspark.sql import functions as f  # noqa: PLC0415 - `pipeline status` must not need pyspark

        folder = self._root / "tables" / table / f"run_id={run_id}"
        if day_column is None:
            df.write.mode("overwrite").option("maxRecordsPerFile", ROWS_PER_FILE).parquet(str(folder))
            return Written(parts=[Part(None, run_id, self._files(folder))])
        # The day is in the path AND in the file: a reader of the files need not parse paths.
        day = f.col(day_column)
        kept = df
        if days is not None:
            named = [date.fromisoformat(each) for each in days if each != NO_DAY]
            kept = df.where(day.isNull() | day.cast("date").isin(named))
        spread = kept.withColumn(_PATH_DAY, day).repartition(_PATH_DAY)
        writer = spread.write.mode("overwrite").partitionBy(_PATH_DAY)
        writer.option("maxRecordsPerFile", ROWS_PER_FILE).parquet(str(folder))
        made = {_day_in(each): each for each in folder.glob(f"{_PATH_DAY}=*")}
        wanted = sorted(made) if days is None else sorted({*days, NO_DAY})
        # A day whose rows are all gone has a part without files: an overwrite would leave the old rows.
        return Written(
            parts=[Part(each, run_id, self._files(made[each]) if each in made else []) for each in wanted]
        )

    def read(self, spark: SparkSession, table: PublishedTable) -> DataFrame:
        from pyspark.sql.types import StructType  # noqa: PLC0415

        schema = StructType.fromJson(table.schema)
        files = [str(self._root / file.path) for part in table.parts for file in part.files]
        return spark.read.schema(schema).parquet(*files) if files else spark.createDataFrame([], schema)

    def _files(self, folder: Path) -> list[File]:
        import pyarrow.parquet  # type: ignore[import-untyped] # noqa: PLC0415

        found = []
        for path in sorted(folder.glob("*.parquet")):
            rows = pyarrow.parquet.read_metadata(path).num_rows
            name, stat = str(path.relative_to(self._root)), path.stat()
            found.append(File(name, rows, stat.st_size, checksum(path), stat.st_mtime_ns, stat.st_ino))
        return found


_PATH_DAY = "day_of_part"
_NULL_DAY = "__HIVE_DEFAULT_PARTITION__"


def _day_in(folder: Path) -> str:
    day = folder.name.partition("=")[2]
    return NO_DAY if day == _NULL_DAY else day


class Delta:
    """Delta Lake tables at `tables/<table>`; the manifest names their version."""

    name = "delta"

    def __init__(self, root: Path) -> None:
        self._root = root

    def require(self, spark: SparkSession) -> None:
        _require(spark, self.name, "io.delta:delta-spark_2.13")

    def write(
        self, df: DataFrame, table: str, run_id: str, day_column: str | None, days: Sequence[str] | None
    ) -> Written:
        location = str(self._root / "tables" / table)
        writer = df.write.format("delta").mode("overwrite").option("userMetadata", run_id)
        if day_column is not None:
            writer = writer.partitionBy(day_column)
        for option, value in self.options(day_column, days).items():
            writer = writer.option(option, value)
        writer.save(location)
        spark = df.sparkSession
        latest = spark.sql(f"DESCRIBE HISTORY delta.`{location}` LIMIT 1").select("version").collect()
        version = str(latest[0][0])
        return Written(location=location, snapshot=version, rows=self._at(spark, location, version).count())

    @staticmethod
    def options(day_column: str | None, days: Sequence[str] | None) -> dict[str, str]:
        """`replaceWhere` replaces the named days also when there are no new rows for one of them."""
        if days is None or day_column is None:
            return {"overwriteSchema": "true"}
        listed = ", ".join(f"'{day}'" for day in days)
        return {"replaceWhere": f"{day_column} IN ({listed}) OR {day_column} IS NULL"}

    def read(self, spark: SparkSession, table: PublishedTable) -> DataFrame:
        return self._at(spark, table.location or "", table.snapshot or "")

    def _at(self, spark: SparkSession, location: str, version: str) -> DataFrame:
        return spark.read.format("delta").option("versionAsOf", version).load(location)


class Iceberg:
    """Iceberg tables `<catalog>.relaymesh.<table>`; the manifest names their snapshot."""

    name = "iceberg"

    def __init__(self, root: Path, catalog: str = "spark_catalog") -> None:
        self._root = root
        self._catalog = catalog

    def require(self, spark: SparkSession) -> None:
        _require(spark, self.name, "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13")

    def location(self, table: str) -> str:
        return f"{self._catalog}.relaymesh.{table}"

    def write(
        self, df: DataFrame, table: str, run_id: str, day_column: str | None, days: Sequence[str] | None
    ) -> Written:
        from pyspark.sql import functions as f  # noqa: PLC0415

        spark, location = df.sparkSession, self.location(table)
        writer: Any = df.writeTo(location).using("iceberg").option("snapshot-property.run_id", run_id)
        if day_column is not None:
            writer = writer.partitionedBy(f.col(day_column))
        if days is None or day_column is None:
            writer.createOrReplace()
        else:
            writer.overwrite(f.col(day_column).cast("string").isin(list(days)) | f.col(day_column).isNull())
        newest = f"SELECT snapshot_id FROM {location}.snapshots ORDER BY committed_at DESC LIMIT 1"
        snapshot = str(spark.sql(newest).collect()[0][0])
        return Written(location=location, snapshot=snapshot, rows=self._at(spark, location, snapshot).count())

    def read(self, spark: SparkSession, table: PublishedTable) -> DataFrame:
        return self._at(spark, table.location or "", table.snapshot or "")

    def _at(self, spark: SparkSession, location: str, snapshot: str) -> DataFrame:
        return spark.read.option("snapshot-id", snapshot).table(location)


FORMATS: dict[str, type[Parquet] | type[Delta] | type[Iceberg]] = {
    each.name: each for each in (Parquet, Delta, Iceberg)
}


def format_of(name: str, root: Path) -> TableFormat:
    if name not in FORMATS:
        raise InvalidSettings(f"there is no table format {name!r}", hint=f"one of {', '.join(FORMATS)}")
    return FORMATS[name](root)


def _require(spark: SparkSession, name: str, package: str) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        spark.read.format(name).load("there-is-no-such-table")
    except (PySparkException, Py4JError) as error:
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            return  # it knows the format, and missed the table
        raise InvalidSettings(
            f"this Spark has no format {name!r}: the jar {package} is missing",
            hint=f"spark-submit --packages {package}:VERSION, or --format parquet, which needs nothing",
        ) from error
