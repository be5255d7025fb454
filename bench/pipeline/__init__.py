"""The pipeline measured: journal to bronze, bronze to report, and other engines on the same tables.

    python -m bench.pipeline                     measure on 2,000,000 and on 4,000,000 events, print tables
    python -m bench.pipeline --events 10000000   on other numbers of events (may be repeated)
    python -m bench.pipeline --quick             a small journal: a few minutes
    python -m bench.pipeline --write-docs        the last results into docs/benchmarks-pipeline.md
    python -m bench.pipeline.before_after REV    commands on another revision and on this tree, in turns

Every figure has its wall time and its CPU time, of Python and Java together. Wall time says what a user waits
for, and is only worth something on a machine that does nothing else; CPU time also on a busy one.
"""
