"""Faults injected into runs through real processes: `python -m tests.chaos --n 200 --seed 1` prints a table."""
