"""Shows: progress, terminal tables, report, dashboard."""
