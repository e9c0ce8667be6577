"""One thread for these tiny models: more only get in each other's way."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
