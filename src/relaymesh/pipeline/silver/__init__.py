"""Silver tables: pure functions of bronze. Same rows in, same rows out, on any cluster.

Every function takes whole DataFrames and reads no clock. What the journal does not hold (its past was removed
before the first run) stays null; nothing is guessed.
"""
