"""The journal as tables, through Apache Spark.

`source` reads segments (and writes messages) as the Spark format `relaymesh`; `schema` says what every
table holds; the rest are pure functions from DataFrames to DataFrames and the runs that publish them.

This is the only home of pyspark, pyarrow and Java. It reads a data directory as anybody may, without a
lock and never beyond the mark, and touches no node's memory. It needs `pip install "relaymesh[pipeline]"`.
"""
