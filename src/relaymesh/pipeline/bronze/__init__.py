"""Bronze: every event of the journals as a row, once, in the order of batches.

Files are written once and never changed. A batch counts when its log entry exists. If it is tried again, it
has the same events. Silver, gold and audit are made from these rows alone.
"""
