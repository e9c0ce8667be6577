"""Pictures of a run's report for the docs: `python scripts/screenshots.py RUN docs/images`.

Needs Chromium: Playwright's own (`playwright install chromium`), or any given by CHROMIUM=/path/to/chromium.
"""

import argparse
import os
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from sweeper.present.locate import run_folder
from sweeper.present.report import write_report

SHOTS = (("report", 1360, "light"), ("report-dark", 1360, "dark"), ("report-phone", 390, "light"))
"""File name, width in CSS pixels, colour scheme."""


def shoot(browser: Browser, page_file: Path, name: str, width: int, scheme: str, out: Path) -> None:
    """The top of the report: verdict, winners, first figures."""
    context = browser.new_context(
        viewport={"width": width, "height": 1500 if width > 600 else 900},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(page_file.resolve().as_uri())
    # Figures are drawn when they come near: fetch the first, then go back to the top.
    page.locator(".plot").first.scroll_into_view_if_needed()
    page.wait_for_selector(".plot .main-svg")
    page.evaluate("window.scrollTo(0, 0)")
    page.screenshot(path=out / f"{name}.png")
    context.close()
    if errors:
        raise SystemExit(f"{page_file}: the page reported {errors}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    report = write_report(run_folder(options.run))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM"), args=["--no-sandbox"])
        for name, width, scheme in SHOTS:
            shoot(browser, report, name, width, scheme, options.out)
            print(options.out / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
