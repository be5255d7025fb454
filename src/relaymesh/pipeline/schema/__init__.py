"""What every table holds: one `StructType` each, with a version and a comment per column.

Columns are only appended. A change that a reader of the old table would misread is a new version.
"""
