"""The kernel: what RelayMesh decides, and nothing else.

Pure state machines. No I/O, no clock, no randomness of its own, no threads: `now` (mesh
time, integer milliseconds) and a random source are passed in. `Kernel.step(command, now)`
returns a `Step`: the records that must reach the journal and the effects that wait for
them. `Kernel.apply(record)` is the only thing that changes durable state, live and in
recovery alike, so a replay of the records is the live state.

The caller promises to call from one thread at a time, to pass a `now` that never goes
back, and to release no effect before the sequences it names are written and synced.
"""
