"""What a visitor of the dashboard sees and does, in Chromium."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Visitor, serving
from folders import usual
from playwright.sync_api import Page, expect

Visit = Callable[..., Visitor]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return list(usual(tmp_path_factory.mktemp("results")))


@pytest.fixture(scope="module")
def base(runs: list[Path]) -> Iterator[str]:
    with serving(runs[0].parents[1]) as address:
        yield address


@pytest.fixture
def run_url(base: str, runs: list[Path]) -> str:
    return f"{base}/run/{runs[0].parent.name}/{runs[0].name}"


def read(page: Page) -> None:
    """Until the run was read and its verdict stands."""
    expect(page.locator("h1")).to_contain_text("×")


def labels(page: Page) -> set[str]:
    return {text.split("layers")[0].strip() for text in page.locator("#results tbody th").all_inner_texts()}


def test_the_list_shows_every_run_with_its_verdict(base: str, visit: Visit) -> None:
    visitor = visit()
    page = visitor.see(base)
    expect(page.locator("td.headline").first).to_contain_text("the baseline's speed")
    expect(page.locator("td.headline").last).to_contain_text("the baseline's speed")
    assert page.locator("#runs tbody tr").count() == 2
    assert "failed" in page.locator("#runs").inner_text()
    visitor.shot("runs")
    visitor.check_access()


def test_a_run_draws_its_figures_and_says_what_to_run(run_url: str, visit: Visit) -> None:
    visitor = visit()
    page = visitor.see(run_url)
    read(page)
    assert visitor.draw_all() >= 8
    expect(page.locator("figure.speedup h3")).to_have_text("Speedup of each configuration")
    assert "python -m sglang.launch_server" in (page.locator("#winners pre").first.text_content() or "")
    assert "5-1-6 → 5-1-5" in page.locator("#results").inner_text()
    visitor.shot("run")
    visitor.check_access()


def test_filters_narrow_table_and_figures_and_stand_in_the_address(run_url: str, visit: Visit) -> None:
    visitor = visit()
    page = visitor.see(run_url)
    read(page)
    assert labels(page) == {"baseline", "3-1-4", "5-1-6", "5-4-16", "5-8-32"}
    page.get_by_label("topk").select_option("4")
    expect(page.locator("#results [role=status]")).to_contain_text("6 of 15")
    assert labels(page) == {"baseline", "5-4-16"}
    page.get_by_role("combobox", name="Concurrency").select_option("8")
    page.get_by_label("Kind of prompt").select_option("edit")
    expect(page.locator("#results thead").first).to_contain_text("edit: ms/token")
    assert re.search(r"topk=4&load=8&category=edit", page.url)
    visitor.draw_all()
    assert "5-4-16" in page.locator("figure.speedup").inner_text()
    assert "5-1-6" not in page.locator("figure.speedup").inner_text()

    colleague = visit()
    other = colleague.see(page.url)
    expect(other.locator("#results [role=status]")).to_contain_text("2 of 15")
    assert other.get_by_label("topk").input_value() == "4"
    visitor.shot("filters")
    page.go_back()
    expect(page.locator("#results [role=status]")).to_contain_text("2 of 15")
    expect(page.locator("#results thead").first).not_to_contain_text("edit: ms/token")
    page.go_back()
    expect(page.locator("#results [role=status]")).to_contain_text("6 of 15")
    assert page.get_by_role("combobox", name="Concurrency").input_value() == ""


def test_the_way_down_leads_from_a_trial_to_a_request_and_its_servers_log(
    run_url: str, runs: list[Path], visit: Visit
) -> None:
    for folder in (runs[0] / "groups").glob("*/start-*"):
        (folder / "server.log").write_text("[2026-11-28 21:00:01] Load weight begin\n[2030-01-01 00:00:00] the end\n")
    visitor = visit()
    page = visitor.see(run_url)
    read(page)
    page.get_by_role("link", name="5-4-16 at concurrency 8").click()
    expect(page.locator("h1")).to_have_text("5-4-16 at concurrency 8")
    visitor.draw_all()
    visitor.shot("trial")
    visitor.check_access()
    page.locator("#requests").get_by_label("Sort").select_option("errors")
    expect(page.locator("#results tbody tr").first).to_contain_text("cut: the stream ended early")
    page.get_by_role("link", name="request 7", exact=True).click()
    assert visitor.draw_all() >= 1
    assert "return 42" in page.locator("pre").inner_text()
    visitor.shot("request")
    visitor.check_access()
    page.get_by_role("link", name="The server's log from then on").click()
    expect(page.locator("div.log")).to_contain_text("the end")
    page.get_by_label("Lines with").fill("weight")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("[role=status]")).to_contain_text("1 lines with “weight”")
    visitor.check_access()


def test_two_runs_are_compared(base: str, runs: list[Path], visit: Visit) -> None:
    visitor = visit()
    page = visitor.see(f"{base}/compare")
    first, second = (f"{run.parent.name}/{run.name}" for run in runs)
    page.get_by_label("First").select_option(first)
    page.get_by_label("Second").select_option(second)
    page.get_by_role("button", name="Compare").click()
    expect(page.locator("#changes-title")).to_be_visible(timeout=20_000)
    assert "worse" in page.locator("#results tbody").inner_text()
    assert visitor.draw_all() >= 1
    visitor.shot("compare")
    visitor.check_access()
    assert page.url.endswith(f"b={second.replace('/', '%2F')}")


def test_everything_can_be_reached_by_keyboard(run_url: str, visit: Visit) -> None:
    visitor = visit()
    page = visitor.see(run_url)
    read(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.get_by_label("topk").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#results [role=status]")).not_to_contain_text("15 of 15")
    assert page.evaluate("document.activeElement.name") == "topk"
    link = page.locator("#results tbody th a").first
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#measurements-title")).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_phones_and_the_dark_are_served(run_url: str, visit: Visit, width: int, scheme: str) -> None:
    visitor = visit(width, 844, scheme)
    page = visitor.see(run_url)
    read(page)
    visitor.draw_all()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    visitor.shot(f"run-{width}-{scheme}")
    visitor.check_access()
