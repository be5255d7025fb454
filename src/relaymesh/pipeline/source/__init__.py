"""The Spark format `relaymesh`: journals as DataFrames, and DataFrames as messages.

Promises: every synced event of the directories is a row exactly once, or the read fails, or (when asked for)
the place that does not read back is a row of the quarantine table. Nothing is skipped silently. A row that
was read once is always read the same, because the live segment counts only up to the mark.

The caller must give executors the same paths as the driver. Readers take no lock and keep nothing between
calls but the target of one availableNow run.
"""
