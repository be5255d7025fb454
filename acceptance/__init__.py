"""Acceptance on the real clock: four runs that a release has to pass.

    make acceptance                 about 4 minutes
    make acceptance MINUTES=0.5     the same four, shorter: about a minute
    make acceptance MINUTES=30      at full length, about an hour: 30 minutes of load; then 30 minutes with
                                    5 minutes of timeouts, and 10 minutes to recover

1. steady       1.2 times the target rate, and the backlog stays below half of the buffer
2. outage       one subscriber times out for a while: senders are answered, the other subscriber notices
                nothing, retries stay within bounds, the backlog falls back, nothing is lost
3. duplicates   the same id, hundreds of times, is one effect
4. exit         what always fails ends in the one exit, with every field in log line and dead letter

Each prints a verdict with its numbers. The exit code is 1 if one fails.
"""
