"""The conformance suite of adapters: `python -m relaymesh.testing.adapters module:Adapter`.

What is named is an adapter, or a function that makes one from a `Stage`. Each case gives it one work, whose
content is `{"scenario": …}` and says how the agent behaves. The adapter runs the agent that the stage names:
as a script (`stage.script`), as a worker (`stage.worker`), as a function (`stage.function`), or through a
program of its own that does what `agent.play` does. The suite believes nothing that the adapter says about
processes and memory: the agent writes down each process that it starts, and the suite looks them up in the
process table.

An adapter whose agent is a long-lived process has the attribute `keeps_process = True`: its process and the
children of it may run until `close`.
"""

from relaymesh.testing.adapters.stage import Stage

__all__ = ["Stage"]
