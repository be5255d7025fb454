"""Gold tables: figures to act on, each a pure function of silver.

docs/explanation/analytics.md says for each formula where it comes from and what it does not tell.
"""
