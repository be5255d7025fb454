"""Agents that RelayMesh runs: scripts, long-lived workers, Python functions, a person; later models.

An adapter runs the work of one agent (`relaymesh.agents.adapter`). The supervisor takes deliveries, hands
each to the adapter of its agent, and settles it with the outcome. An adapter does not use the mesh, and the
supervisor does not use the command line.
"""
