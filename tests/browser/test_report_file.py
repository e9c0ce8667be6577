"""The report file in Chromium: from disk, offline, on paper and on a phone."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Visitor
from folders import OOM, Hasty
from playwright.sync_api import expect

from sweeper.present.report import write_report
from sweeper.testing.model import Story
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run

Visit = Callable[..., Visitor]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    run = model_run(("3-1-4", "5-1-6", "5-4-16", "5-8-32"), story=Story(failures={"5-8-32": OOM}))
    yield write_report(store_run(run, tmp_path_factory.mktemp("results"), disk=Hasty()))


ON_PAPER = """window.addEventListener("beforeprint", () => {
  window.onPaper = document.querySelectorAll("details:not([open])").length;
})"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_report_opens_offline_and_is_accessible(report: Path, visit: Visit, width: int, scheme: str) -> None:
    visitor = visit(width, 844, scheme)
    visitor.page.context.set_offline(True)
    page = visitor.see(report.as_uri())
    for plot in page.locator(".plot").all():
        plot.scroll_into_view_if_needed()
        expect(plot.locator(".main-svg").first).to_be_attached(timeout=15_000)
    page.evaluate("window.scrollTo(0, 0)")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    visitor.shot(f"report-{width}-{scheme}")
    visitor.check_access()


def test_a_report_can_be_printed(report: Path, visit: Visit) -> None:
    visitor = visit()
    page = visitor.see(report.as_uri())
    page.emulate_media(media="print", color_scheme="light")
    closed = page.locator("details:not([open])").count()
    assert closed > 0
    page.evaluate(ON_PAPER)
    assert len(page.pdf()) > 50_000
    expect(page.locator("nav")).to_be_hidden()
    assert page.evaluate("window.onPaper") == 0
    assert page.locator("details:not([open])").count() == closed, "the page on the screen is as it was"
