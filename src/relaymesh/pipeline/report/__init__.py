"""The published tables as one page, as SQL and as a notebook.

A report is one HTML file that needs no other resource: no script, no font, no request. DuckDB makes it from
the published Parquet files through the manifest; Spark is not needed to read it. Every plot is drawn from the
rows of one query and is shown beside those rows and that query, so a reader can check it.
Content of messages is in no table, and so in no report.
"""
