"""The endpoints, one file for each noun. Each takes an `Exchange` and returns a body, or raises."""
