"""What holds for every test."""

from hypothesis import HealthCheck, settings

# How fast this machine is at the moment is no property of the code.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
