"""How a schema names a column: its type, and in a few words what it holds."""

from __future__ import annotations

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

INT, LONG, NUMBER = IntegerType(), LongType(), DoubleType()
TEXT, FLAG = StringType(), BooleanType()
TIME, DAY = TimestampType(), DateType()

Column = tuple[str, DataType, str]


def table_of(*columns: Column) -> StructType:
    """A schema in the order given. Columns may be null: an empty one says that it is not known."""
    return StructType([StructField(name, kind, True, {"comment": words}) for name, kind, words in columns])
