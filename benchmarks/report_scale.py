"""Size of a report of 200 trials, and how long Chromium takes to open it: `python benchmarks/report_scale.py`.

8 repeats a trial. Open means: the page has loaded, and the figures in view are drawn. Chromium is the first one on the
PATH, or CHROMIUM.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "browser"))
from conftest import FLAGS, chromium
from folders import Hasty, requests

from sweeper.present.report import write_report
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run

TRIPLES = [f"{steps}-{topk}-{drafts}" for steps in range(1, 9) for topk, drafts in ((1, steps + 1), (4, 16), (8, 32))]
LOADS = (1, 2, 4, 8, 16, 24, 32, 48)
DRAWN = "() => document.querySelector('.plot .main-svg') !== null"
ALL = "() => [...document.querySelectorAll('.plot')].every(each => each.querySelector('.main-svg'))"


def opened(browser: Browser, report: Path) -> tuple[float, float]:
    """Seconds until it is open, and until every figure was scrolled to and drawn."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    begin = time.perf_counter()
    page.goto(report.as_uri())
    page.locator(".plot").first.scroll_into_view_if_needed()
    page.wait_for_function(DRAWN)
    first = time.perf_counter() - begin
    for plot in page.query_selector_all(".plot"):
        plot.evaluate("entry => entry.scrollIntoView()")
        page.wait_for_timeout(20)
    page.wait_for_function(ALL)
    every = time.perf_counter() - begin
    page.close()
    return first, every


def main() -> None:
    run = model_run(TRIPLES, concurrency=LOADS)
    with tempfile.TemporaryDirectory(prefix="sweeper-report-") as folder:
        stored = store_run(run, Path(folder), samples=requests(), disk=Hasty())
        begin = time.perf_counter()
        report = write_report(stored)
        print(f"{len(run.plan.trials)} trials, {len(run.measurements)} measurements")
        print(f"{report.stat().st_size / 1e6:8.2f} MB, written in {time.perf_counter() - begin:.1f} s")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
            times = [opened(browser, report) for _ in range(5)]
            browser.close()
    print(f"{median(first for first, _ in times):8.2f} s to open (5 times, the slowest {max(times)[0]:.2f} s)")
    print(f"{median(every for _, every in times):8.2f} s until every figure was scrolled to and drawn")


if __name__ == "__main__":
    main()
