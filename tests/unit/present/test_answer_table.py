"""Equal, tie and different in everything that shows a run."""

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from sweeper.analysis.compare import compare
from sweeper.analysis.tables import frame
from sweeper.core.lossless import Judged, Losslessness
from sweeper.core.run import RunData
from sweeper.core.trial import Trial
from sweeper.present.dashboard.app import create_app
from sweeper.present.document import document
from sweeper.present.markdown import render_markdown
from sweeper.present.report import render_html
from sweeper.present.tabular import render_csv, report_data
from sweeper.present.terminal import print_run
from sweeper.store.reader import read_run
from sweeper.testing.runs import model_run
from sweeper.testing.stored import store_run

TIE = Judged(prompt_id="code-7", likeness="tie", position=3, gap=0.0625)
LOSS = Judged(prompt_id="json-2", likeness="different", position=16, gap=2.3125)
UNKNOWN = Judged(prompt_id="json-4", likeness="unchecked", position=None, gap=None)


def judged(trial: Trial, *unequal: Judged, equal: int) -> Losslessness:
    return Losslessness(
        trial_id=trial.trial_id, start=0, repeat=0, dtype="bfloat16", bound=0.25, by="tokens", equal=equal,
        unequal=unequal,
    )  # fmt: skip


def run(**unequal: tuple[Judged, ...]) -> RunData:
    """Sixteen answers a trial; keys are labels with `_` for `-`, `baseline` among them."""
    made = model_run(("3-1-4", "5-1-6"), concurrency=(8,), starts=1, repeats=2)
    found = []
    for trial in made.plan.trials:
        parted = unequal.get("a" + made.plan.arm(trial.arm_id).label.replace("-", "_"), ())
        found.append(judged(trial, *parted, equal=16 - len(parted)))
    return replace(made, losslessness=tuple(found))


SOUND = run(a3_1_4=(TIE,))
LOSSY = run(a3_1_4=(TIE, LOSS, LOSS), a5_1_6=(UNKNOWN,))


def shown(made: RunData) -> str:
    out = io.StringIO()
    print_run(made, file=out)
    return out.getvalue()


def test_the_table_has_a_row_a_trial_with_the_baseline_against_itself() -> None:
    table = document(SOUND).answers
    assert table is not None
    assert [(row.label, row.counts) for row in table.rows] == [
        ("baseline against itself", ("16", "16", "0", "0", "0")),
        ("3-1-4", ("16", "15", "1", "0", "0")),
        ("5-1-6", ("16", "16", "0", "0", "0")),
    ]
    assert table.rows[1].detail == "widest tie gap 0.0625 at token 4 of code-7"
    assert "0.25 apart there (bfloat16)" in table.intro


def test_a_lossy_configuration_stands_at_the_top_with_the_gap() -> None:
    assert [note for note in document(LOSSY).notes if "lossless" in note] == [
        "3-1-4 is not lossless: 2 of 16 greedy answers (concurrency 8) differ from the baseline's by more than "
        "rounding (gap 2.31 at token 17 of json-2; widest tie gap 0.0625 at token 4 of code-7)."
    ]
    assert not any("lossless" in note for note in document(SOUND).notes)


def test_a_baseline_that_differs_from_itself_puts_its_arms_in_doubt() -> None:
    notes = document(run(abaseline=(LOSS,))).notes
    assert any("The baseline differs from itself in 1 of 16 greedy answers" in note for note in notes)


@pytest.mark.parametrize("render", [render_markdown, render_html, shown])
def test_every_report_shows_the_counts_and_the_gap(render) -> None:  # type: ignore[no-untyped-def]
    text = " ".join(render(LOSSY).split())
    assert "not lossless" in text
    assert "2.31" in text and "17 of json" in text
    assert "baseline against itself" in text


def test_a_long_table_in_the_terminal_shows_only_where_answers_part() -> None:
    made = model_run(("3-1-4", "5-1-6"), concurrency=tuple(range(1, 11)), starts=1, repeats=2)
    parted = made.plan.trials[12]
    found = [judged(trial, *((TIE,) if trial is parted else ()), equal=15) for trial in made.plan.trials]
    text = shown(replace(made, losslessness=tuple(found)))
    assert "29 more, in which every answer is equal" in text
    assert "against itself" not in text and "widest tie gap 0.0625" in text


@pytest.mark.parametrize("render", [render_markdown, render_html, shown])
def test_without_a_comparison_nothing_is_said(render) -> None:  # type: ignore[no-untyped-def]
    assert "against itself" not in render(model_run(("3-1-4",), concurrency=(8,), starts=1, repeats=2))


async def test_the_dashboards_run_page_shows_them_as_read_back_from_disk(tmp_path: Path) -> None:
    path = store_run(LOSSY, tmp_path)
    assert set(read_run(path).losslessness) == set(LOSSY.losslessness)
    transport = httpx.ASGITransport(create_app(tmp_path))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as visitor:
        while "being read" in (text := (await visitor.get(f"/run/{path.parent.name}/{path.name}")).text):  # noqa: ASYNC110  as a browser does
            await asyncio.sleep(0.02)
        trial = next(one for one in LOSSY.plan.trials if LOSSY.plan.arm(one.arm_id).label == "3-1-4")
        page = (await visitor.get(f"/run/{path.parent.name}/{path.name}/trial/{trial.trial_id}")).text
    assert "baseline against itself" in text and "gap 2.31 at token 17 of json-2" in text
    assert "13 equal, 1 tie, 2 different" in page


def test_tables_have_the_counts_as_numbers() -> None:
    table = frame(LOSSY)
    row = table[table["arm"] == "3-1-4"].iloc[0]
    assert list(row[["lossless_equal", "lossless_tie", "lossless_different", "lossless_unchecked"]]) == [13, 1, 2, 0]
    assert (row["lossless_gap"], row["lossless_bound"]) == (2.3125, 0.25)
    assert "lossless_different" in render_csv(LOSSY).splitlines()[0]
    (trial,) = [one for one in json.loads(json.dumps(report_data(LOSSY)))["trials"] if one["arm"] == "3-1-4"]
    assert trial["lossless_different"] == 2


def test_an_unjudged_trial_has_no_zero() -> None:
    bare = model_run(("3-1-4",), concurrency=(8,), starts=1, repeats=2)
    assert frame(bare)["lossless_different"].isna().all()
    assert all(entry.lossless is None for entry in compare(bare).outcomes)
