"""Tasks: plans whose steps are messages.

A step is a message. A ready step becomes a message in its agent's mailbox; lease, retry, backoff, breaker,
dead letter and redrive work as for any message of that mailbox. The records that change the message also
change the step (`board.py`).

A task moves on in two separate decisions. *Settle*: a message is settled, its step ends, and perhaps its task
(`ending.py`); no message is sent. *Advance*: a step whose needs have ended gets its message (`advance.py`).
The ready steps are computed from the state and never stored, so a crash between the two loses nothing.
"""
