"""Two revisions beside each other: `python -m bench.compare REV` prints one ratio per row.

    python -m bench.compare REV               REV against the working tree, about 6 minutes
    python -m bench.compare REV OTHER         REV against OTHER
    python -m bench.compare REV --quick       3 rounds of a few rows
    python -m bench.compare REV --rows mesh   the rows whose name starts so

The workload is this directory's, the same for both revisions, and uses their public API alone. Each revision
runs in a process of its own. The exit code is 9 if a row fell below the floor. docs/benchmarks.md says how to
read the table.
"""
