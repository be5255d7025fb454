"""Runs: the journal into bronze, bronze into tables, tables checked and published.

`Pipeline` (pipeline.py) is the entry point. A run may be killed at any point and started again: bronze holds
every event exactly once, and readers see the complete tables of the last run that passed its checks.
"""
