"""Bronze: every event of the journals as a row, once, in the order of batches.

Files are written once and never changed. A batch counts when its log entry is there, and it holds the same
events whenever it is tried again. Silver, gold and audit are made from these rows alone.
"""
