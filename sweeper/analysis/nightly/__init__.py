"""The nightly decision: is tonight still what it was, since when not, and why. Pure."""
