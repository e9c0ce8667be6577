"""The history of a nightly job, in Chromium."""

import sys
from collections.abc import Callable
from pathlib import Path

from conftest import Visitor, serving
from playwright.sync_api import expect

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "nightly"))
from thought_nights import Nights

from sweeper.nightly.history import History
from sweeper.testing.model import Model


def test_a_history_is_drawn_night_by_night(tmp_path: Path, visit: Callable[..., Visitor]) -> None:
    nights = Nights(History(tmp_path / "nightly"))
    nights.quiet(8)
    nights.night(model=Model(acceptance=0.5))
    broken = tmp_path / "nightly" / "nights" / "20200101-030000"
    broken.mkdir()
    (broken / "night.json").write_text("{")
    visitor = visit()
    with serving(tmp_path) as base:
        page = visitor.see(f"{base}/nightly")
        expect(page.locator("h1")).to_have_text("Nightly: nightly")
        expect(page.locator("#nights tbody tr")).to_have_count(9)
        expect(page.locator("#nights tbody tr").first).to_contain_text("regressed")
        assert "20200101-030000" in page.locator(".notes").inner_text()
        expect(page.locator("p.sentence")).to_contain_text("regressed since")
        assert visitor.draw_all() >= 4
        assert "Accept length" in page.locator("#figure-room").inner_text()
        visitor.shot("nightly")
        visitor.check_access()
