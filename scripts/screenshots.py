"""Pictures for README and docs, of a finished run: `python scripts/screenshots.py results/quickstart docs/images`.

report.png is the top of the run's report, dashboard.png the same run in the dashboard.

Needs Chromium: one on the PATH, one given by CHROMIUM=/path/to/chromium, or Playwright's own.
"""

import argparse
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from sweeper.present.dashboard.app import create_app
from sweeper.present.dashboard.serve import DashboardServer
from sweeper.present.locate import run_folder
from sweeper.present.report import write_report

WIDTH, HEIGHT = 1360, 1500
"""In CSS pixels."""
NAMES = ("chromium", "chromium-browser", "google-chrome")


def shoot(browser: Browser, address: str, out: Path) -> None:
    """The top of a page: verdict, winners, first figures."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    # The dashboard reads the run first; figures are drawn when they come near.
    page.locator(".plot").first.scroll_into_view_if_needed(timeout=60_000)
    page.wait_for_selector(".plot .main-svg")
    page.evaluate("window.scrollTo(0, 0)")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=out)
    context.close()
    print(out)
    if errors:
        raise SystemExit(f"{address}: the page reported {errors}")


@contextmanager
def dashboard(results: Path) -> Iterator[str]:
    """Address of a dashboard of this folder."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = DashboardServer(create_app(results))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    run = run_folder(options.run)
    chromium = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shoot(browser, write_report(run).resolve().as_uri(), options.out / "report.png")
        with dashboard(run) as address:
            shoot(browser, f"{address}/run/{run.parent.name}/{run.name}", options.out / "dashboard.png")
        browser.close()


if __name__ == "__main__":
    main()
