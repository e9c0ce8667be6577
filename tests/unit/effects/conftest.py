from pathlib import Path

import pytest

from sweeper.effects.ledger import STATE_DIR_VARIABLE


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger, locks and reservations of the test's own."""
    folder = tmp_path / "state"
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(folder))
    return folder
