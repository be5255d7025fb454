"""The published tables as one page, as SQL and as a notebook.

A report is one HTML file that asks nothing of anybody: no script, no font, no request. It is made from the
published Parquet files through the manifest, by DuckDB; Spark is not needed to look. Every plot is drawn from
the rows of one query, and stands beside those rows and that query, so whoever doubts a plot can ask again.
Content of messages is in no table, and so in no report.
"""
