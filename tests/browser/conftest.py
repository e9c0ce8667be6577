"""A real Chromium before a real dashboard. Without Chromium these tests fail: what nobody looked at is not tested."""

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from sweeper.present.dashboard.app import create_app
from sweeper.present.dashboard.serve import DashboardServer

PATIENCE_MS = 60_000
"""How fast this machine is at the moment is no property of a page."""
expect.set_options(timeout=PATIENCE_MS)
ARTIFACTS = Path(__file__).parents[2] / "test-artifacts"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")
AXE_RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}}


def chromium() -> str:
    """CHROMIUM, or the first one on the PATH."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.fail(
            "no Chromium: `make browser` installs it as root; otherwise install the package chromium of your system, "
            "or say where one is by CHROMIUM=/path/to/chromium"
        )
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield started
        started.close()


@contextmanager
def serving(results: Path) -> Iterator[str]:
    """The dashboard of a results folder; gives its address without the last slash."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    server = DashboardServer(create_app(results))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join(timeout=20)


@dataclass
class Visitor:
    """A page, and what went wrong on it."""

    page: Page
    troubles: list[str]

    def see(self, address: str) -> Page:
        self.page.goto(address)
        return self.page

    def shot(self, name: str, *, whole: bool = True) -> None:
        ARTIFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=whole)

    def check_access(self) -> None:
        """No violation that axe-core can find."""
        found = Axe().run(self.page, options=AXE_RULES)
        assert found.violations_count == 0, found.generate_report()

    def draw_all(self) -> int:
        """Scrolls through the page until every figure is drawn or hidden; returns how many are drawn."""
        for plot in self.page.query_selector_all(".plot"):
            plot.evaluate("entry => entry.scrollIntoView()")
            self.page.wait_for_function("entry => entry.closest('figure').hidden || entry.made", arg=plot)
        self.page.evaluate("window.scrollTo(0, 0)")
        return self.page.locator("figure:not([hidden]) .plot .main-svg").count()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visitor]]:
    """Makes visitors; at the end none may have met an error in the console or the page."""
    visitors: list[Visitor] = []

    def make(width: int = 1280, height: int = 900, scheme: str = "light") -> Visitor:
        dark = "dark" if scheme == "dark" else "light"
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=dark)
        context.set_default_timeout(PATIENCE_MS)
        visitor = Visitor(page=context.new_page(), troubles=[])

        def hear(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                visitor.troubles.append(f"{message.type}: {message.text} ({message.location.get('url')})")

        visitor.page.on("console", hear)
        visitor.page.on("pageerror", lambda error: visitor.troubles.append(str(error)))
        visitor.page.on(
            "dialog", lambda dialog: (visitor.troubles.append(f"dialog {dialog.message}"), dialog.dismiss())
        )
        visitors.append(visitor)
        return visitor

    yield make
    for visitor in visitors:
        visitor.page.context.close()
    assert not [trouble for visitor in visitors for trouble in visitor.troubles]
