"""Results on disk: files are the truth."""
