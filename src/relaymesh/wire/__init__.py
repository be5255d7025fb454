"""Kernel types to bytes and back.

`records` and `snapshot` are what the journal and its checkpoints hold; `content` and
`envelope` are the one check at the edge: what passes them can be stored and read back.
"""
