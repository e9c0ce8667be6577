from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.effects.engine_flags import shipped_table
from sweeper.engine.flags import FlagTable
from sweeper.planning.matching import Pins, Situation, graph_sizes, pins

TABLE = shipped_table()


def matched(**more: Any) -> Pins:
    given_: dict[str, Any] = {
        "args": {},
        "device": "cuda",
        "algorithms": {"EAGLE3"},
        "trees": False,
        "concurrency": 32,
        "flags": TABLE,
        **more,
    }
    return pins(Situation(**given_))


def test_without_speculation_nothing_is_pinned() -> None:
    assert matched(algorithms=set()) == Pins()


def test_the_cap_is_speculations_own_or_the_largest_concurrency() -> None:
    assert matched().args["max_running_requests"] == 48
    assert matched(concurrency=128).args["max_running_requests"] == 128


def test_graphs_are_a_gpus() -> None:
    assert "cuda_graph_bs_decode" not in matched(device="cpu").args


def test_an_older_engine_gets_its_own_spelling_and_one_without_gets_none() -> None:
    older = FlagTable("0.5.10", tuple(f for f in TABLE.flags if "cuda_graph" not in f.key))
    assert "cuda_graph_bs_decode" not in matched(flags=older).args


@pytest.mark.parametrize("given_flag", ["disable_cuda_graph", "cuda_graph_max_bs_decode", "cuda_graph_config"])
def test_graph_settings_of_the_user_are_left_alone(given_flag: str) -> None:
    assert set(matched(args={given_flag: 8}).args) == {"max_running_requests"}


@given(st.integers(1, 256))
def test_graph_sizes_rise_to_the_largest_and_start_with_every_small_one(largest: int) -> None:
    sizes = graph_sizes(largest)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == largest
    assert sizes[: min(8, largest)] == list(range(1, min(8, largest) + 1))


def test_attention_ranks_share_the_cap() -> None:
    warnings = matched(args={"attn_dp_size": 8}).warnings
    assert any("8 attention-DP ranks admit 6 requests each" in warning for warning in warnings)
    assert not matched(args={"attn_dp_size": 8}, concurrency=6).warnings


def test_a_cap_below_the_load_is_the_queues_measure() -> None:
    assert "is below concurrency 32" in matched(args={"max_running_requests": 8}).warnings[0]


def test_a_backend_left_to_the_engine_is_said_where_it_depends_on_the_tree() -> None:
    assert any("attention_backend is left" in warning for warning in matched(trees=True).warnings)
    assert not matched(trees=True, args={"attention_backend": "fa3"}).warnings
    assert not matched(trees=True, target={"kv_lora_rank": 512}).warnings
    assert not matched(trees=True, device="cpu").warnings
