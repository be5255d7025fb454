"""The WebSocket endpoint: batches in, deliveries pushed on credit, sessions that outlive connections.

A connection begins with `hello` and is answered with `welcome`, which names its session. Requests belong to
the session, not to the connection: a client that reconnects resumes the session, repeats requests without an
answer, and gets the answers. Deliveries that it never saw go back, and no attempt is counted.
"""
