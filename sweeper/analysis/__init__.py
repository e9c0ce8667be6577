"""From samples to numbers, verdicts and figures. Pure."""
