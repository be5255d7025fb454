"""The SDK: what programs use of a mesh.

`Mesh` and `AsyncMesh` have the same methods and the same promises. Both talk to a session, which is either a
node in this process or a remote one; the SDK does not know which.
"""
