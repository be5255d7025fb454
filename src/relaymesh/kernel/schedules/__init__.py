"""Schedules: work that begins at times which a cron line gives.

The kernel knows no calendar. A schedule holds the time of its next tick; the shell works out the tick behind
it and submits `FireSchedule`. The kernel takes that only while the schedule still waits for this tick, and
emits `ScheduleFired` and the task or the message in one step. They are in one frame, so a crash leaves both
or neither: each tick has at most one run.
"""
