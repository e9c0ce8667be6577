"""The report: complete, self-contained, and harmless whatever a label says."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.core.result import Failure
from sweeper.errors import StoreError
from sweeper.present.markdown import render_markdown
from sweeper.present.report import render_html, write_report
from sweeper.present.tabular import render_csv, render_json
from sweeper.present.terminal import print_run
from sweeper.testing.runs import Story, model_run
from sweeper.testing.stored import store_run

FAILURE = Failure(
    failure_class="oom_capture",
    message="no memory left for the graphs",
    remedy="lower mem_fraction_static",
    log_lines=("torch.OutOfMemoryError: tried to allocate 2 GiB",),
)


@pytest.fixture(scope="module")
def page() -> str:
    return render_html(model_run(story=Story(failures={"5-4-16": FAILURE}, effective={"5-1-6": (5, 1, 5)})))


def test_verdict_comes_first(page: str) -> None:
    body = page[page.index("<body>") :]
    assert body.index("<h1") < body.index("<h2")
    headline = re.sub(r"<[^>]+>", "", body[body.index("<h1") : body.index("</h1>")])
    assert re.match(r"\S+ is \d\.\d\d× \(", headline)


def test_page_needs_no_network(page: str) -> None:
    without_plotly = re.sub(r"<script>/\*\*.*?</script>", "", page, flags=re.S)
    assert not re.search(r"""(?:src|href)=["'](?!#)""", without_plotly)
    assert "default-src 'none'" in page


def test_page_says_what_ran_why_it_failed_and_how_to_launch(page: str) -> None:
    assert "5-1-6 → 5-1-5" in page
    for words in (FAILURE.message, FAILURE.remedy, FAILURE.log_lines[0], "oom_capture"):
        assert words in page
    assert "python -m sglang.launch_server" in page
    assert "Break-even length" in page and "NVIDIA H200" in page


def test_figures_are_data_blocks_that_parse(page: str) -> None:
    blocks = re.findall(r'<script type="application/json" id="data-(\w+)">(.*?)</script>', page, flags=re.S)
    assert {"speedup", "pareto", "step_cost"} <= {name for name, _ in blocks}
    assert all(json.loads(data)["data"] for _, data in blocks)


def test_a_run_of_two_hundred_trials_stays_below_six_megabytes() -> None:
    triples = [f"{steps}-1-{steps + 1}" for steps in range(1, 41)]
    run = model_run(triples, concurrency=(1, 4, 8, 16, 32), starts=2, repeats=2)
    assert len(run.plan.trials) > 200
    assert len(render_html(run).encode()) <= 6_000_000


HOSTILE = "</script><script>alert(1)</script><b onmouseover=x>|`"


def test_hostile_names_stay_text_in_every_format() -> None:
    run = model_run(("3-1-4",), concurrency=(1,))
    arms = tuple(arm if arm.is_baseline else replace(arm, label=HOSTILE) for arm in run.plan.arms)
    run = replace(run, plan=replace(run.plan, arms=arms, experiment="a"), problems=(HOSTILE,))
    html = render_html(run)
    assert "<script>alert" not in html and "<b onmouseover" not in html
    markdown = render_markdown(run)
    assert "<script>" not in markdown
    main = markdown.split("### Where the time went")[0]
    rows = [line for line in main.splitlines() if line.startswith("|")]
    cells = {len(re.findall(r"(?<!\\)\|", line)) for line in rows}
    assert len(cells) == 1, "a label must not add a column"
    assert json.loads(render_json(run))["trials"][1]["arm"] == HOSTILE


def test_spreadsheets_are_given_no_formulas() -> None:
    run = model_run(("3-1-4",), concurrency=(1,))
    arms = tuple(arm if arm.is_baseline else replace(arm, label="=cmd|' /C calc'!A0") for arm in run.plan.arms)
    assert ",=cmd" not in render_csv(replace(run, plan=replace(run.plan, arms=arms)))


def test_absent_is_null_in_json_and_empty_in_csv() -> None:
    run = model_run(("3-1-4",), concurrency=(1,))
    base = json.loads(render_json(run))["trials"][0]
    assert base["arm"] == "baseline"
    assert base.get("accept_length") is None
    assert "nan" not in render_csv(run).lower()


def test_writing_replaces_the_old_report_whole(tmp_path: Path) -> None:
    folder = store_run(model_run(("3-1-4",), concurrency=(1,), starts=1, repeats=2), tmp_path)
    (folder / "report.html").write_text("old")
    path = write_report(folder)
    assert path == folder / "report.html"
    assert "within one server start" in path.read_text()
    assert [file.name for file in folder.iterdir() if file.name.endswith(".tmp")] == []


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run folder"):
        write_report(tmp_path)


def test_a_report_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    folder = store_run(model_run(("3-1-4",), concurrency=(1,), starts=1, repeats=2), tmp_path)
    with pytest.raises(StoreError, match=r"cannot be written: No such file or directory; .*sweeper report --out`$"):
        write_report(folder, tmp_path / "nowhere" / "x.html")


def test_a_report_that_cannot_be_finished_leaves_nothing_half_written(tmp_path: Path) -> None:
    folder = store_run(model_run(("3-1-4",), concurrency=(1,), starts=1, repeats=2), tmp_path)
    (folder / "report.html").mkdir()
    with pytest.raises(StoreError, match="cannot be written: Is a directory"):
        write_report(folder)
    assert [file.name for file in folder.iterdir() if file.name.endswith(".tmp")] == []


def test_on_a_phone_the_speedup_stands_beside_the_name(page: str) -> None:
    header = page[page.index('<th scope="col" rowspan="2">Configuration') :]
    order = [header.index(f">{name}<") for name in ("Configuration", "Speedup", "Verdict", "tok/s", "Ran as")]
    assert order == sorted(order)


def test_markdown_has_the_verdict_a_table_a_load_and_the_commands() -> None:
    text = render_markdown(model_run(concurrency=(1, 8), story=Story(failures={"5-4-16": FAILURE})))
    assert text.count("| configuration | ran as |") == 2
    assert text.index("**5-1-6 is") < text.index("### Concurrency 1") < text.index("### Failures")
    assert "    python -m sglang.launch_server" in text


def test_terminal_is_eighty_columns_and_plain_in_a_pipe(tmp_path: Path) -> None:
    run = model_run(aux_layer_ids=((2, 30, 58), (-1, 2, 30)), story=Story(failures={"5-4-16 ids=2,30,58": FAILURE}))
    with (tmp_path / "out").open("w") as file:
        print_run(run, file=file)
    text = (tmp_path / "out").read_text()
    assert "\x1b" not in text
    lines = [line for line in text.splitlines() if "sglang.launch_server" not in line]
    assert max(map(len, lines)) <= 80
    assert "oom_capture" in text and "lower mem_fraction_static" in text


def test_what_the_workload_left_out_is_shown_as_its_default() -> None:
    run = model_run(("3-1-4",), concurrency=(1,))
    text = render_html(replace(run, experiment={**run.experiment, "workload": {"concurrency": [1]}}))
    assert "64 × builtin:code, temperature 0" in text


def test_measurements_of_two_engines_in_one_run_are_told_with_both() -> None:
    run = model_run(("3-1-4",), concurrency=(1,))
    assert "with the same engine" not in render_markdown(run)
    first, *others = run.measurements
    older = replace(first.fingerprint, engine=replace(first.fingerprint.engine, version="0.5.17"))
    text = render_markdown(replace(run, measurements=(replace(first, fingerprint=older), *others)))
    now = first.fingerprint.engine.version
    assert f"Not all of this was measured with the same engine: engine version: 0.5.17 and {now}" in text
