"""A baseline must differ in nothing but speculation."""

import pytest

from sweeper.analysis.matched import RunningCap, effective_cap, queue_limit, rerun_advice, unequal_arguments
from sweeper.engine.wire import effective_config

BASE = {
    "tp_size": 4,
    "page_size": 64,
    "disable_radix_cache": False,
    "kv_cache_dtype": "auto",
    "max_running_requests": 40,
    "random_seed": 3,
    "speculative_algorithm": None,
}
ARM = {
    **BASE,
    "disable_radix_cache": True,
    "kv_cache_dtype": "fp8_e5m2",
    "random_seed": 4,
    "speculative_algorithm": "EAGLE3",
}


def test_seed_and_speculation_may_differ_and_nothing_else() -> None:
    assert [entry.key for entry in unequal_arguments(BASE, ARM)] == ["disable_radix_cache", "kv_cache_dtype"]


def test_what_belongs_to_one_launch_may_differ() -> None:
    own = {"port": 1, "served_model_name": "a", "launch_command": "--port 1", "smg_http_sidecar_port": 5}
    other = {"port": 2, "served_model_name": "b", "launch_command": "--port 2", "smg_http_sidecar_port": 6}
    assert unequal_arguments(own, other) == ()


def test_the_remedy_names_every_argument_with_its_value() -> None:
    advice = rerun_advice(unequal_arguments(BASE, ARM))
    assert "rerun the baseline with disable_radix_cache=true and kv_cache_dtype=fp8_e5m2" in advice
    assert rerun_advice(()) == ""


def running_cap(per_rank: list[int], cap: int | None) -> RunningCap:
    states = [{"effective_max_running_requests_per_dp": value} for value in per_rank]
    info = {"max_running_requests": cap, "dp_size": len(per_rank) or 1, "internal_states": states}
    return effective_cap(effective_config(info))


def test_points_above_the_smaller_cap_are_queue_limited() -> None:
    baseline, arm = running_cap([4096], None), running_cap([40], 40)
    comparable = {load: queue_limit(load, baseline, arm).comparable for load in (1, 8, 40, 64, 128)}
    assert comparable == {1: True, 8: True, 40: True, 64: False, 128: False}
    assert "queue-limited, not comparable" in queue_limit(64, baseline, arm).message


def test_the_cap_is_what_the_server_resolved_not_a_constant() -> None:
    assert running_cap([256], 256) == RunningCap(total=256)
    assert running_cap([], 40) == RunningCap(total=40)


def test_caps_of_ranks_add_up_and_one_rank_may_overflow_first() -> None:
    cap = running_cap([5] * 8, 40)
    assert cap == RunningCap(total=40, per_rank=5)
    limit = queue_limit(24, running_cap([4096], None), cap)
    assert limit.comparable
    assert "unbalanced" in limit.message
    assert not queue_limit(48, running_cap([4096], None), cap).comparable


@pytest.mark.parametrize("load", [41, 500])
def test_equal_caps_queue_alike_and_stay_comparable(load: int) -> None:
    limit = queue_limit(load, RunningCap(total=40), RunningCap(total=40))
    assert limit.comparable
    assert "alike" in limit.message
