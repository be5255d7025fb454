"""The shell: clock, disk, committer and sessions around the pure kernel. It contains no decision."""
