"""The endpoints, one file for each noun. Each takes an `Exchange` and answers a body, or raises."""
