"""Before anything is installed, a disk that is too small is named."""

import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_room.py"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with nothing installed, and an empty cache."""
    (tmp_path / "checkout").mkdir()
    monkeypatch.chdir(tmp_path / "checkout")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("UV_LINK_MODE", raising=False)
    yield tmp_path


def told(free_gib: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free_gib * 2**30))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    assert isinstance(ended.value.code, int)
    return ended.value.code, capsys.readouterr().err


def fill_cache(place: Path) -> None:
    package = place / "cache" / "archive-v0" / "x" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()


def test_too_small_a_disk_is_one_line(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = told(3.0, monkeypatch, capsys)
    assert code == 1
    assert line.count("\n") == 1
    assert "12 GiB are needed" in line and "3.0 GiB are free" in line


@pytest.mark.parametrize(("mode", "needed"), [("hardlink", 1.5), ("copy", 11.5)])
def test_what_uv_can_link_needs_next_to_nothing(
    mode: str, needed: float, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_cache(place)
    monkeypatch.setenv("UV_LINK_MODE", mode)
    assert told(needed, monkeypatch, capsys) == (0, "")
    assert told(needed - 0.1, monkeypatch, capsys)[0] == 1


def test_an_installed_checkout_needs_room_for_the_tests_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "checkout" / ".venv").mkdir()
    (place / "checkout" / ".venv" / ".ready").touch()
    assert told(1.5, monkeypatch, capsys) == (0, "")
    assert told(1.4, monkeypatch, capsys)[0] == 1
