"""Folders that are empty, broken, hostile or huge, in Chromium."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from conftest import Visitor, serving
from folders import Hasty, large_run, requests, store_quickly
from playwright.sync_api import expect

from sweeper.core.events import Notice
from sweeper.core.result import Failure
from sweeper.store.writer import RunWriter
from sweeper.testing.model import Story
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run

Visit = Callable[..., Visitor]
HOSTILE = """<img src=x onerror="document.title='taken'"></script><script>document.title='taken'</script>"'{{7*7}}"""


def test_an_empty_folder_says_how_to_begin(tmp_path: Path, visit: Visit) -> None:
    visitor = visit()
    with serving(tmp_path / "nothing") as base:
        page = visitor.see(base)
        expect(page.locator("#empty-title")).to_have_text("This folder does not exist yet")
        assert "sweeper run" in page.locator("pre").inner_text()
        visitor.check_access()
        page.get_by_role("link", name="Compare").click()
        assert "fewer than two runs" in page.locator("main").inner_text()
        page.get_by_role("link", name="Nightly").click()
        visitor.check_access()
        visitor.shot("empty")


def test_broken_and_half_copied_runs_are_explained(tmp_path: Path, visit: Visit) -> None:
    broken = store_run(model_run(("3-1-4",)), tmp_path, disk=Hasty())
    (broken / "plan.json").write_text("{ half")
    damaged = store_run(model_run(("5-1-6",)), tmp_path, disk=Hasty())
    next(damaged.glob("trials/*/start-*/measurement.json")).write_text("")
    (tmp_path / "copied" / "20260101-000000-aaaa" / "trials").mkdir(parents=True)
    with RunWriterClosed(tmp_path) as stopped, serving(tmp_path) as base:
        visitor = visit()
        page = visitor.see(base)
        expect(page.locator("#runs")).to_contain_text("cannot be read")
        expect(page.locator("#runs")).to_contain_text("stopped half-way")
        assert "half copied" in page.locator("main").inner_text()
        page.get_by_role("link", name=stopped.name).click()
        assert "goes on where it stood" in page.locator("main").inner_text()
        visitor.check_access()
        page.goto(f"{base}/run/{damaged.parent.name}/{damaged.name}")
        expect(page.locator(".notes")).to_contain_text("measurement.json")
        page.goto(base)
        page.get_by_role("link", name=broken.name).click()
        expect(page.locator("h1")).to_have_text("This run cannot be read")
        visitor.check_access()
        visitor.shot("broken")
        page.goto(f"{base}/run/no/such")
        expect(page.locator("h1")).to_have_text("Nothing here")
        # The browser itself reports pages of status 404 and 500 in its console.
        visitor.troubles[:] = [trouble for trouble in visitor.troubles if "the server responded with" not in trouble]


class RunWriterClosed:
    """A run that ended before anything was measured."""

    def __init__(self, results: Path) -> None:
        writer = RunWriter.create(results, model_run(("3-1-4",)).plan, experiment={}, environment={}, disk=Hasty())
        writer.record(Notice(message="the power went"))
        writer.close()
        self.path = writer.path

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None: ...


def test_hostile_strings_are_text_and_nothing_else(tmp_path: Path, visit: Visit) -> None:
    run = model_run(("3-1-4", "5-1-6"), story=Story(failures={"5-1-6": FAILURE}))
    arms = tuple(replace(arm, label=f"{arm.label}{HOSTILE}", notes=(HOSTILE,)) for arm in run.plan.arms)
    plan = replace(run.plan, experiment=f"x{HOSTILE}".replace("/", "∕"), arms=arms, warnings=(HOSTILE,))
    run = replace(run, plan=plan, environment={HOSTILE: HOSTILE}, experiment={"workload": {"prompts": HOSTILE}})
    path = store_run(run, tmp_path, samples=requests(3, text=HOSTILE), disk=Hasty())
    for folder in (path / "groups").glob("*/start-*"):
        (folder / "server.log").write_text(HOSTILE + "\n\x1b[31m\x00")
    visitor = visit()
    with serving(tmp_path) as base:
        page = visitor.see(base)
        page.locator("#runs tbody a").first.click()
        expect(page.locator("h1")).to_contain_text("onerror")
        visitor.draw_all()
        visitor.shot("hostile")
        visitor.check_access()
        page.locator("#results tbody th a").nth(1).click()
        visitor.draw_all()
        page.get_by_role("link", name="request 1", exact=True).click()
        expect(page.locator("pre")).to_have_text(HOSTILE)
        visitor.draw_all()
        page.get_by_role("link", name="The server's log from then on").click()
        expect(page.locator("div.log")).to_contain_text("onerror")
        for address in (f"{base}/?find={HOSTILE}", f"{base}/compare?a={HOSTILE}&b=x/{HOSTILE}"):
            page.goto(address)
            assert page.title() != "taken"
        assert page.locator("img").count() == 0


FAILURE = Failure(failure_class="unknown", message=HOSTILE, remedy=HOSTILE, log_lines=(HOSTILE,))


def test_ten_thousand_trials_are_paged_filtered_and_drawn(tmp_path: Path, visit: Visit) -> None:
    path = store_quickly(large_run(), tmp_path)
    visitor = visit()
    with serving(tmp_path) as base:
        page = visitor.see(f"{base}/run/{path.parent.name}/{path.name}")
        # At once from the journal, while 10,010 measurements are still being read.
        expect(page.locator("#results [role=status]")).to_contain_text("10010 of 10010")
        assert page.locator("#results tbody tr").count() >= 100
        page.get_by_label("topk").select_option("4")
        expect(page.locator("#results [role=status]")).to_contain_text("2510 of 10010")
        expect(page.locator("h1")).to_contain_text("Undecided", timeout=90_000)
        page.get_by_label("Steps").select_option("3")
        page.get_by_label("Sort").select_option("speedup")
        expect(page.locator("#results [role=status]")).to_contain_text("260 of 10010")
        page.get_by_role("link", name="Next").click()
        expect(page.locator("#results .pager")).to_contain_text("Page 2 of 3")
        assert page.locator("#results tbody tr:not(.remark)").count() == 100
        assert visitor.draw_all() >= 6
        visitor.shot("ten-thousand", whole=False)
