"""The node as a server: Mailbox protocol 1.1 over HTTP and WebSocket, around one node and its session.

Promises: what `POST /v1/messages` answers with 202 is synced; a client that goes away while it waits has
received nothing; every refusal is a problem document with a code, a reason and a hint, and none of them is a
5xx for anything a client can send. A stop loses nothing, even a kill. `run` is the process, `app` the routing
table, `routes` the endpoints; `security` checks every request before them. No code here decides about
messages: the kernel does.
"""
