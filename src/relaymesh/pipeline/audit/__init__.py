"""The audit: the mesh's promises checked over all events, from the journal alone.

Rules are functions from bronze (and silver's messages) to rows of violations. No rows: nothing contradicts
the promises. Events before the first one in bronze are unknown; what depends on them is not judged.
"""
