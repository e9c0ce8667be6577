"""A read-only web view of a results folder: runs, live runs, reports, comparisons, nightly history."""
