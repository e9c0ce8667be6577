"""From the experiment file to the plan. Pure."""
