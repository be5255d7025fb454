"""Who may ask the node for what, and how much of it.

`Guard` stands outermost. Behind it every request comes from a host that is meant, carries a valid
credential (`principal_of`), is no larger and no slower than the limits, and every write is in the
audit log. What a credential allows is asked of its `Principal`, by the routes; content, and what a
message may say, is checked at the edge of the wire.
"""
