"""The SDK: what programs see of a mesh.

`Mesh` and `AsyncMesh` have the same surface and the same promises. Both speak to a session, which
may be a node in this process or, later, one far away; neither knows which.
"""
