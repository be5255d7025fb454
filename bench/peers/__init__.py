"""RelayMesh, embedded, beside message servers that other teams would take: the same work in the same run.

    make bench-peers                        three rounds, under 6 minutes
    make bench-peers ARGS='--quick'         one short round, under 90 seconds
    make bench-peers ARGS='--only redis'    RelayMesh and one of them
    make bench-peers ARGS='--write-docs'    the last results into docs/benchmarks-peers.md

The servers are those of Debian's packages (bench/peers/install.sh). The bench starts its own, on free
loopback ports and in directories below `bench/results/peers`, on the disk that RelayMesh writes to, and ends
them. One that is not installed is named in the report. docs/benchmarks-peers.md says how each is set and
what its acknowledgement is worth.
"""
