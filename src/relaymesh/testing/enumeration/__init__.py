"""Every crash the disk can leave behind, and every bit it can turn, tried on the real journal.

A scripted life of a journal is recorded call by call (`recording`, `lives`). From the recording follow
the states in which a power loss may leave the directory (`platter`, `choices`, `states`); each is recovered
by the real code and compared with what had been promised at that moment (`checking`). `flips` turns
the bits of a 64 KiB journal one by one and compares each start with the verdict written in
docs/formats/journal.md. `python -m relaymesh.testing.crashes` runs both; docs/explanation/crash-points.md
says what is covered and what is not.
"""
