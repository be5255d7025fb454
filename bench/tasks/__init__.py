"""Tasks measured: steps a second, a neighbour's latency, memory; DBOS and huey beside them in the same run.

    python -m bench.tasks                    three rounds, about ten minutes
    python -m bench.tasks --quick            one short round
    python -m bench.tasks --only chain       chain, small, fan, p99, memory (may be repeated)
    python -m bench.tasks --write-docs       the last results into docs/benchmarks-tasks.md

All take their turn in each round, each measurement in a process of its own, and ratios are taken within a
round. Everything is synced before it is told; docs/benchmarks-tasks.md says how DBOS and huey are set.
"""
