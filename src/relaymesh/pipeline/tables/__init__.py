"""The warehouse on disk: published tables, and the manifest that says which files count.

Files are written once and never changed. Two small JSON files, each swapped by an atomic rename, say which of
them are there: `bronze/generation.json` with the batch log beside it, and `manifest.json`. A reader that
resolves the manifest sees the tables of one run, all of them, whole. Nothing that a kept manifest names is
removed. docs/formats/warehouse.md is enough to write a reader.
"""
