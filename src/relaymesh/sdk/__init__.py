"""The SDK: what programs use of a mesh.

`Mesh` and `AsyncMesh` have the same methods and the same promises. Both use a session, which is either a node
in this process or a remote one; the SDK treats both alike.
"""
