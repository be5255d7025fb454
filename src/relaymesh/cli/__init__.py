"""The command line: one file per group of commands, and no decision about messages in any of them.

What it promises: data goes to stdout and everything else to stderr; `--json` prints one object per line
with the fields of the table; an error is one line with a code, a message, a hint and whether trying again
can help, and the exit code of `failure.py`; nothing is asked without a terminal.

Commands that only look (`inbox`, `topic list`, `dlq list`, `journal`, `doctor`) take no lock and write
nothing, so they work beside a running process. Commands that change something open the directory.
"""
