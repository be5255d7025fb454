"""The journal as tables, through Apache Spark.

`source` reads segments (and writes messages) as the Spark format `relaymesh`; `schema` says what every
table holds; the rest are pure functions from DataFrames to DataFrames and the runs that publish them.

Only this package uses pyspark, pyarrow and Java. It reads a data directory as any reader does, without a lock
and never beyond the mark, and does not touch a node's memory. Install: `pip install "relaymesh[pipeline]"`.
"""
