"""What holds for every test."""

import gc

from hypothesis import HealthCheck, settings

# How fast this machine is at the moment is no property of the code.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
gc.disable()  # until everything is imported: the imports of the fast tier make no garbage


def pytest_collection_finish() -> None:
    """What the imports made stays: the collector need not look through it again and again."""
    gc.freeze()
    gc.enable()
