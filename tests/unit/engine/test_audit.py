from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sweeper.core.launch import LaunchPlan
from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.engine.audit import differences, identity_problem, unequal_knobs
from sweeper.engine.wire import effective_config

CHAIN = SpecConfig(algorithm="EAGLE3", draft_model_path="/d", num_steps=2, eagle_topk=1, num_draft_tokens=12)
SPEC_INFO = {
    "version": "0.5.23",
    "model_path": "/m",
    "served_model_name": "sweeper-n1",
    "speculative_algorithm": "EAGLE3",
    "speculative_draft_model_path": "/d",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
    "max_running_requests": 48,
    "tp_size": 4,
}


def requested(spec: SpecConfig | None = CHAIN, **args: Any) -> ServerConfig:
    return ServerConfig(model_path="/m", device="cuda", args=args, env={}, spec=spec)


def keys(config: ServerConfig, info: dict[str, Any]) -> dict[str, tuple[Any, Any, bool]]:
    found = differences(config, effective_config(info), "0.5.23")
    return {item.key: (item.requested, item.effective, item.explained is not None) for item in found}


def test_a_chains_shortened_window_is_a_difference_that_the_engine_rule_explains() -> None:
    assert keys(requested(), SPEC_INFO) == {"speculative_num_draft_tokens": (12, 3, True)}


def test_a_window_that_no_rule_explains_is_unexpected() -> None:
    info = {**SPEC_INFO, "speculative_num_draft_tokens": 7}
    assert keys(requested(), info)["speculative_num_draft_tokens"] == (12, 7, False)


def test_what_the_engine_chooses_itself_is_no_difference() -> None:
    free = replace(CHAIN, num_steps=None, eagle_topk=None, num_draft_tokens=None)
    assert keys(requested(free), SPEC_INFO) == {}


def test_nextn_is_eagle() -> None:
    spec = replace(CHAIN, algorithm="NEXTN", num_draft_tokens=3)
    found = keys(requested(spec), {**SPEC_INFO, "speculative_algorithm": "EAGLE"})
    assert found == {"speculative_algorithm": ("NEXTN", "EAGLE", True)}


def test_a_baseline_that_speculates_is_unexpected() -> None:
    assert keys(requested(None), SPEC_INFO) == {"speculative_algorithm": (None, "EAGLE3", False)}


def test_a_lowered_running_cap_is_explained_and_a_raised_one_is_not() -> None:
    spec = replace(CHAIN, num_draft_tokens=3)
    assert keys(requested(spec, max_running_requests=96), SPEC_INFO) == {"max_running_requests": (96, 48, True)}
    assert keys(requested(spec, max_running_requests=16), SPEC_INFO) == {"max_running_requests": (16, 48, False)}


def test_spellings_of_the_same_value_are_no_difference() -> None:
    info = {**SPEC_INFO, "mem_fraction_static": 0.85, "cuda_graph_bs_decode": [1, 2], "trust_remote_code": True}
    spec = replace(CHAIN, num_draft_tokens=3)
    config = requested(
        spec, **{"tp": 4, "mem-fraction-static": "0.85", "cuda_graph_bs_decode": [1, 2], "trust_remote_code": True}
    )
    assert keys(config, info) == {}


def test_a_copy_of_the_draft_with_other_layer_ids_is_no_difference() -> None:
    spec = replace(CHAIN, num_draft_tokens=3, aux_layer_ids=(1, 2, 3))
    found = keys(requested(spec), {**SPEC_INFO, "speculative_draft_model_path": "/cache/overlay-1"})
    assert found == {}
    foreign = keys(requested(replace(spec, aux_layer_ids=None)), {**SPEC_INFO, "speculative_draft_model_path": "/x"})
    assert foreign == {"speculative_draft_model_path": ("/d", "/x", False)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("model_path", "served_model_name", "speculative_algorithm", "speculative_num_steps", "max_running_requests")


@given(
    st.dictionaries(st.sampled_from((*KEYS, "tp_size", "page_size", "attention_backend")), JSON),
    st.dictionaries(st.sampled_from(("tp", "page_size", "max_running_requests", "enable_mixed_chunk")), JSON),
)
def test_no_server_info_breaks_the_audit(info: dict[str, Any], args: dict[str, Any]) -> None:
    effective = effective_config(info)
    for spec in (None, CHAIN):
        found = differences(requested(spec), effective, None)
        assert all(item.requested != item.effective for item in found)
    baseline = ServerConfig(model_path="/m", device="cuda", args=args, env={}, spec=None)
    assert isinstance(differences(baseline, effective, "0.5.23"), tuple)
    assert isinstance(identity_problem(plan("sweeper-n1"), effective, exit_code=None), str | None)


def plan(name: str, *argv: str) -> LaunchPlan:
    return LaunchPlan(
        launch_id="n1",
        argv=("python", "-m", "sglang.launch_server", *argv),
        env={},
        gpu_ids=(),
        host="127.0.0.1",
        port=30111,
        base_url="http://127.0.0.1:30111",
        served_model_name=name,
        ready_timeout_s=1,
        log_path=Path("/l"),
    )


def test_yesterdays_server_on_the_port_is_told_by_its_name_although_the_model_agrees() -> None:
    effective = effective_config({**SPEC_INFO, "served_model_name": "sweeper-n0"})
    problem = identity_problem(plan("sweeper-n1"), effective, exit_code=1)
    assert problem is not None
    assert problem.startswith("the server on port 30111 is not the one launched")
    for sign in ("sweeper-n0 instead of sweeper-n1", "EAGLE3 although none", "exited with 1"):
        assert sign in problem


def test_the_launched_server_is_recognised() -> None:
    wanted = plan("sweeper-n1", "--speculative-algorithm", "EAGLE3")
    assert identity_problem(wanted, effective_config(SPEC_INFO), exit_code=None) is None


def test_an_answer_after_our_own_process_ended_is_not_ours() -> None:
    assert identity_problem(plan("sweeper-n1"), effective_config(SPEC_INFO), exit_code=0) is not None


def test_a_baseline_with_other_cache_settings_is_unequal_and_seeds_are_not() -> None:
    base = {"tp_size": 8, "disable_radix_cache": False, "kv_cache_dtype": "auto", "random_seed": 3, "page_size": 16}
    arm = {**base, "disable_radix_cache": True, "kv_cache_dtype": "fp8", "random_seed": 4, "speculative_num_steps": 3}
    found = unequal_knobs(effective_config(arm), effective_config({**base, "speculative_num_steps": None}))
    assert [(item.key, item.requested, item.effective) for item in found] == [
        ("disable_radix_cache", False, True),
        ("kv_cache_dtype", "auto", "fp8"),
    ]
