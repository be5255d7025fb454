"""The WebSocket endpoint: batches in, deliveries pushed on credit, sessions that outlive connections.

A connection begins with `hello` and is answered with `welcome`, which names its session. What is asked
belongs to the session, not to the connection: a client that reconnects resumes it, repeats what was not
answered, and gets the answer it missed; deliveries it never saw go back unburned.
"""
