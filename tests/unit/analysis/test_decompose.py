"""Formulas on published-looking tables of our own."""

import pytest

from sweeper.analysis.decompose import (
    accept_rate,
    chain_estimates,
    crossovers,
    decompose,
    length_bound,
    step_time_ms,
)


def test_the_crossover_is_named_by_its_neighbours_and_interpolated() -> None:
    (found,) = crossovers({1: 1.71, 4: 1.48, 16: 1.19, 32: 0.985, 64: 0.80})
    assert (found.below, found.above) == (16, 32)
    assert found.at == pytest.approx(30.3, abs=0.5)


def test_curves_that_never_pass_one_have_no_crossover() -> None:
    assert crossovers({1: 1.7, 8: 1.3}) == ()
    assert crossovers({1: 0.9}) == ()


def test_the_longest_acceptance_may_lose() -> None:
    """Length is not speed: the arm with the longest acceptance is below its break-even."""
    base_ms = 1000 / 90.0
    arms = {"short": (1.5, 95.0), "middle": (2.0, 99.0), "long": (2.2, 87.0)}
    parts = {
        name: decompose(
            delivered_length=length,
            step_time_ms=step_time_ms(accept_length=length, tok_per_s=speed),
            baseline_step_time_ms=base_ms,
            bound=None,
        )
        for name, (length, speed) in arms.items()
    }
    assert {name: part.decode_speedup > 1 for name, part in parts.items()} == {
        "short": True,
        "middle": True,
        "long": False,
    }
    assert parts["long"].break_even_length == pytest.approx(2.2 / 87.0 * 90.0)
    assert max(parts, key=lambda name: parts[name].decode_speedup) == "middle"


def test_rate_falls_while_speed_rises_so_it_ranks_nothing() -> None:
    arms = [(1.8, 2, 120.0), (2.6, 4, 150.0), (2.9, 6, 155.0), (3.0, 8, 146.0)]
    rates = [accept_rate(accept_length=length, num_draft_tokens=drafts) for length, drafts, _ in arms]
    speeds = [speed for *_, speed in arms]
    assert rates == pytest.approx([0.8, 1.6 / 3, 1.9 / 5, 2 / 7])
    assert sorted(rates, reverse=True) == rates
    assert speeds.index(max(speeds)) == 2


def test_factors_of_a_decomposition_multiply_to_the_decode_speedup() -> None:
    part = decompose(delivered_length=2.5, step_time_ms=16.0, baseline_step_time_ms=10.0, bound=4)
    assert part.bound is not None and part.draft_factor is not None and part.draft_share is not None
    assert part.bound * part.draft_factor * part.engine_factor == pytest.approx(part.decode_speedup)
    assert part.draft_share + (part.engine_share or 0) == pytest.approx(1)
    assert part.draft_share == pytest.approx(0.5, abs=0.001)


@pytest.mark.parametrize(
    ("steps", "topk", "drafts", "bound"),
    [
        (3, 1, 4, 4),
        (1, 1, 16, 2),
        (5, 4, 16, 6),
        (8, 8, 4, 4),
        (None, None, 8, 8),
        (0, 1, 8, 8),
        (None, None, None, None),
    ],
)
def test_bound_of_a_verify_step(steps: int | None, topk: int | None, drafts: int | None, bound: int | None) -> None:
    assert length_bound(num_steps=steps, eagle_topk=topk, num_draft_tokens=drafts) == bound


def test_shorter_chains_are_estimated_from_the_joint_acceptance_of_the_longest() -> None:
    one, two, three = chain_estimates((1.0, 0.7, 0.4, 0.2), {1: 1.72, 3: 2.3})
    assert [entry.estimate for entry in (one, two, three)] == pytest.approx([1.7, 2.1, 2.3])
    assert one.error == pytest.approx(-0.02)
    assert two.measured is None and two.error is None
