"""The bench: RelayMesh's own figures, measured the way docs/benchmarks.md says.

    make bench                          every figure, about 15 minutes
    make bench ARGS='--quick'           a smaller pass, under 2 minutes
    make bench ARGS='--only one_by_one' one kind of measurement
    make bench ARGS='--write-docs'      the last results into docs/benchmarks.md

Every measurement runs in a process of its own, on a directory of its own under `bench/results/tmp`.
"""
