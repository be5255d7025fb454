"""Tasks: plans whose steps are messages.

A step's life is its message's life. A ready step becomes a message in its agent's mailbox; lease, retry,
backoff, breaker, dead letter and redrive are the mailbox's. What happens to the message is what happens to
the step, because the records that move the message move the step as well (`board.py`).

Two moves, each safe alone. *Settle*: a message leaves its mailbox, its step ends, and perhaps its task
(`ending.py`); no message is sent. *Advance*: a step whose needs have ended gets its message (`advance.py`).
Which steps are ready is derived from the state, never remembered, so a crash between the two loses nothing.
"""
