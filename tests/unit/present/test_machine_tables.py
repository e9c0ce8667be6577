"""Where the time of a run went, and what its GPUs did, in tables of the report."""

from dataclasses import replace

from sweeper.analysis.compare import compare
from sweeper.analysis.tables import frame
from sweeper.analysis.timeline import ENGINE_START, timeline_of
from sweeper.core.result import Measurement
from sweeper.core.run import RunData
from sweeper.present.machine_tables import machine_tables
from sweeper.present.report import render_html
from sweeper.testing.runs import model_run


def tokens(entry: Measurement) -> int:
    assert entry.metrics.output_tokens
    return entry.metrics.output_tokens


def with_energy(run: RunData, energy_j: float | None, *, per_token: float = 0.25) -> RunData:
    """Every window took `per_token` J a token; the first one took `energy_j`."""
    measured = []
    for number, entry in enumerate(run.measurements):
        energy = tokens(entry) * per_token if number else energy_j
        conditions = replace(
            entry.conditions,
            energy_j=energy,
            memory_used_bytes_max=(30 + number % 2) << 30,
            memory_total_bytes=124 << 30,
            throttled_share=0.5 if number else 0.0,
            sm_clock_mhz_min=1815.0 + number,
        )
        measured.append(replace(entry, conditions=conditions))
    return replace(run, measurements=tuple(measured))


def test_start_up_stands_phase_by_phase_beside_what_sweeper_took() -> None:
    run = model_run(["3-1-4"], concurrency=(1,))
    told = timeline_of(run)
    (table, *_) = machine_tables(run, compare(run))
    assert table.key == "time" and len(table.rows) == len(told.starts) > 1
    assert told.orchestration_share is not None and f"{told.orchestration_share:.1%}" in table.intro
    for row, start in zip(table.rows, told.starts, strict=True):
        ready = sum(start.phases.get(name, 0.0) for name in ENGINE_START)
        assert float(row[table.columns.index("until ready")].replace(",", "")) == round(ready, 1)


def test_energy_is_that_of_all_windows_over_all_their_tokens() -> None:
    run = model_run(["3-1-4"], concurrency=(1,))
    first = run.measurements[0]
    run = with_energy(run, tokens(first) * 0.25)
    table = machine_tables(run, compare(run))[-1]
    assert table.key == "gpu"
    assert {row[table.columns.index("energy / token (mJ)")] for row in table.rows} == {"250.0"}
    assert {row[table.columns.index("memory free")] for row in table.rows} == {"75.0%"}
    assert {row[table.columns.index("memory (GiB)")] for row in table.rows} == {"31.0"}
    assert frame(run).energy_j_per_token.eq(0.25).all()


def test_of_energy_read_over_more_than_the_window_only_its_share_counts() -> None:
    run = model_run(["3-1-4"], concurrency=(1,))
    run = with_energy(run, tokens(run.measurements[0]) * 0.25)
    wider = tuple(
        replace(entry, conditions=replace(entry.conditions, energy_over_s=entry.metrics.window_s * 1.25))
        for entry in run.measurements
    )
    assert frame(replace(run, measurements=wider)).energy_j_per_token.round(9).eq(0.2).all()


def test_energy_of_a_trial_is_unknown_as_soon_as_one_window_is() -> None:
    run = with_energy(model_run(["3-1-4"], concurrency=(1,)), None)
    table = machine_tables(run, compare(run))[-1]
    assert [row[table.columns.index("energy / token (mJ)")] for row in table.rows].count("–") == 1


def test_the_report_shows_both_tables_and_leads_to_them() -> None:
    html = render_html(with_energy(model_run(["3-1-4"], concurrency=(1,)), 1.0))
    for key in ("time", "gpu"):
        assert f'id="{key}"' in html and f'href="#{key}"' in html


def test_a_run_on_a_cpu_has_no_table_of_gpus() -> None:
    run = model_run(["3-1-4"], concurrency=(1,))
    bare = [
        replace(entry, conditions=replace(entry.conditions, power_w_mean=None, sm_clock_mhz_mean=None))
        for entry in run.measurements
    ]
    run = replace(run, measurements=tuple(bare))
    assert [table.key for table in machine_tables(run, compare(run))] == ["time"]
