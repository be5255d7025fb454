"""Other ways into the mesh and out of it. Each speaks to a session, embedded or remote, and nothing below."""
