"""Torture: real processes on a real disk, killed, paused and restarted while they work at full speed.

Run it as `relaymesh torture`. It promises nothing itself; it looks for promises that were not kept. What the
workers saw is in ledgers of their own, and `checker.py` judges those with nothing but the standard library:
it shares no line with the product, and runs on its own as `python checker.py LEDGERS`.

    plan.py      which cycle comes next, by seed          worker.py    the program that is killed
    child.py     one worker process, watched by pid       workload.py  what it sends, takes and writes down
    torture.py   cycles, drain, verdict                   ports.py     Mesh and AsyncMesh under one face
    remote.py    the same through a server that is killed  served.py    that server, watched by pid
    checker.py   the rules                                ledger.py    lines that survive a kill
"""
