from sweeper.core.sample import Sample
from sweeper.execution.health import bottleneck, stalled


def answer(ms: float) -> Sample:
    return Sample(
        index=0,
        prompt_id="p",
        category="c",
        due_ns=0,
        send_ns=0,
        chunk_ns=(int(ms * 1e6),),
        chunk_tokens=(1,),
        end_ns=int(ms * 1e6),
        input_tokens=1,
        cached_tokens=0,
        output_tokens=1,
        finish_reason="stop",
        text="x",
        output_ids=None,
        spec=None,
    )


def verdict(**values: float | None) -> str | None:
    said = {"cpu_share": 0.2, "lag_median_ms": 0.4, "late_median_ms": 0.1, **values}
    return bottleneck(**said, samples=[answer(400.0)])


def test_an_idle_generator_is_no_bottleneck():
    assert verdict() is None


def test_a_busy_core_is_a_bottleneck():
    assert "used 97% of its core" in (verdict(cpu_share=0.97) or "")


def test_a_lag_matters_in_proportion_to_what_was_measured_with_it():
    assert verdict(lag_median_ms=15.0) is None
    assert "event loop lagged by 25.0 ms" in (verdict(lag_median_ms=25.0) or "")
    assert "sent late by 30.0 ms" in (verdict(late_median_ms=30.0) or "")


def test_without_measurements_there_is_no_verdict():
    assert bottleneck(cpu_share=None, lag_median_ms=None, late_median_ms=None, samples=[]) is None


def test_a_generator_that_stood_still_for_a_twentieth_of_the_window_says_so():
    assert stalled([0.4] * 200 + [1890.0], wall_s=4.8) == (
        "the load generator stood still for 1.9 s of 4.8 s: this machine was busy elsewhere"
    )
    assert stalled([0.4] * 200 + [190.0], wall_s=4.8) is None
    assert stalled([30.0] * 200, wall_s=8.0) is None
    assert stalled([], wall_s=0.0) is None
