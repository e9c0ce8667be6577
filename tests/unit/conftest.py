"""The fast tier waits for no device: what a test writes need not outlive a power cut."""

import os
from collections.abc import Iterator

import pytest


def written(file: int) -> None:
    """Instead of fsync: as the real one, it refuses a descriptor that is not open."""
    os.fstat(file)


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_the_disk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", written)
        yield
