import time
from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.core.experiment import Experiment
from sweeper.core.trial import Plan
from sweeper.effects.engine_flags import shipped_table
from sweeper.engine.flags import parse_help
from sweeper.planning.facts import Facts
from sweeper.planning.plan import make_plan

SPEC = "speculative: {draft_model_path: /m/draft, configs: [%s]}\n"


def labels(plan: Plan) -> list[str]:
    return [arm.label for arm in plan.arms]


def test_the_baseline_is_added_once_and_every_arm_names_it(plan: Callable[..., Plan]) -> None:
    found = plan(SPEC % "3-1-4, 5-4-16")
    assert labels(found) == ["baseline", "3-1-4", "5-4-16"]
    assert {arm.baseline_id for arm in found.arms} == {found.arms[0].arm_id}
    assert found.arms[0].server.spec is None


def test_a_trial_stands_for_each_arm_at_each_concurrency(plan: Callable[..., Plan]) -> None:
    found = plan(SPEC % "3-1-4" + "workload: {concurrency: [1, 8]}")
    assert [(trial.arm_id, trial.load.concurrency) for trial in found.trials] == [
        (arm.arm_id, level) for arm in found.arms for level in (1, 8)
    ]
    assert len({trial.trial_id for trial in found.trials}) == 4


def test_points_that_run_as_the_same_triple_are_merged_under_the_effective_one(plan: Callable[..., Plan]) -> None:
    found = plan(SPEC % "1-1-16, 1-1-2, 1-1-8")
    assert labels(found) == ["baseline", "1-1-2"]
    assert found.merged[0].dropped == ("1-1-16", "1-1-8")
    assert found.merged[0].reason == "all run as 1-1-2"
    assert found.arms[1].server.spec is not None
    assert found.arms[1].server.spec.num_draft_tokens == 2


def test_a_lone_point_keeps_its_request_but_is_labelled_as_it_runs(plan: Callable[..., Plan]) -> None:
    arm = plan(SPEC % "1-1-16").arms[1]
    assert arm.label == "1-1-2"
    assert arm.server.spec is not None and arm.server.spec.num_draft_tokens == 16
    assert any("replaces num_draft_tokens 16 by num_steps + 1 = 2" in note for note in arm.notes)


def test_named_arms_are_never_merged(plan: Callable[..., Plan]) -> None:
    point = "num_steps: 3, eagle_topk: 1, num_draft_tokens: 4"
    found = plan(SPEC % f"{{name: A, {point}}}, {{name: B, {point}}}, 3-1-4")
    assert labels(found) == ["baseline", "A", "B", "3-1-4"]
    assert len({arm.arm_id for arm in found.arms}) == 4
    assert not found.merged


def test_illegal_points_are_left_out_with_their_reason(plan: Callable[..., Plan]) -> None:
    found = plan(SPEC % "3-1-4, 2-2-8, {num_steps: 3}")
    assert labels(found) == ["baseline", "3-1-4"]
    assert [illegal.label for illegal in found.illegal] == ["2-2-8", "auto"]
    assert "at most 7, got 8" in found.illegal[0].reason
    assert "give all three or none" in found.illegal[1].reason


def test_an_arm_that_expects_its_failure_is_kept_though_illegal(plan: Callable[..., Plan]) -> None:
    found = plan(SPEC % "{num_steps: 2, eagle_topk: 2, num_draft_tokens: 8, expect: crash_start}")
    assert labels(found) == ["baseline", "2-2-8"]
    assert found.arms[1].expect == "crash_start"
    assert any("at most 7" in note for note in found.arms[1].notes)


def test_the_grid_unites_with_configs_and_exclude_removes(plan: Callable[..., Plan]) -> None:
    found = plan(
        "speculative:\n  draft_model_path: /m/draft\n  configs: [7-1-8]\n"
        "  grid: {num_steps: [1, 3], eagle_topk: [1, 4], num_draft_tokens: [5]}\n"
        "  exclude: [{eagle_topk: 4, num_steps: 1}]\n"
    )
    assert labels(found) == ["baseline", "7-1-8", "1-1-2", "3-1-4", "3-4-5"]
    assert "1 points left out by speculative.exclude" in found.notes


def test_auto_tokens_are_an_error_of_trees_only(plan: Callable[..., Plan]) -> None:
    found = plan("speculative: {draft_model_path: /m/draft, grid: {num_steps: [3], eagle_topk: [1, 4]}}")
    assert labels(found) == ["baseline", "3-1-4"]
    assert "write the number" in found.illegal[0].reason


def test_every_combination_of_other_axes_has_its_own_baseline(plan: Callable[..., Plan]) -> None:
    found = plan(
        SPEC % "3-1-4"
        + "sweep: {server.args.attention_backend: [fa3, triton], speculative.draft_model_path: [/m/draft, /m/other]}"
    )
    assert labels(found) == [
        "baseline attention=fa3",
        "3-1-4 attention=fa3 draft=draft",
        "3-1-4 attention=fa3 draft=other",
        "baseline attention=triton",
        "3-1-4 attention=triton draft=draft",
        "3-1-4 attention=triton draft=other",
    ]
    for arm in found.arms:
        baseline = found.arm(arm.baseline_id)
        assert baseline.server.args == arm.server.args


def test_points_with_a_name_of_their_own_do_not_lengthen_the_names_of_the_others(plan: Callable[..., Plan]) -> None:
    named = "{name: lookup, algorithm: NGRAM, num_draft_tokens: 8}, {name: old, algorithm: EAGLE, num_steps: 3, " + (
        "eagle_topk: 1, num_draft_tokens: 4, draft_model_path: /m/other}"
    )
    assert labels(plan(SPEC % f"3-1-4, {named}")) == ["baseline", "3-1-4", "lookup", "old"]


def test_the_running_cap_and_the_graph_sizes_are_pinned_in_both_arms(plan: Callable[..., Plan]) -> None:
    found = plan(SPEC % "3-1-4" + "workload: {concurrency: [1, 64]}")
    for arm in found.arms:
        assert arm.server.args["max_running_requests"] == 64
        assert arm.server.args["cuda_graph_bs_decode"][-1] == 64
    assert any(note.startswith("max_running_requests 64 in every arm") for note in found.notes)


def test_a_load_point_with_more_workers_than_prompts_is_told_as_one_that_is_never_reached(
    plan: Callable[..., Plan],
) -> None:
    load = "workload: {num_prompts: 8, concurrency: [1, 16, 32]%s}"
    never = (
        "num_prompts 8 keeps at most 8 requests in flight: concurrency 16, 32 is never reached; raise it to 32, for a "
        "steady window to 256"
    )
    assert never in plan(SPEC % "3-1-4" + load % "").warnings
    opened = plan(SPEC % "3-1-4" + load % ", arrival: {kind: poisson, rate_rps: 4}").warnings
    assert not any("never reached" in warning for warning in opened), "there it is a bound"


def test_what_the_user_gave_is_never_changed(plan: Callable[..., Plan]) -> None:
    found = plan(
        "server: {model_path: /m/target, args: {max-running-requests: 6, cuda_graph_max_bs_decode: 8}}\nname: t\n"
        + SPEC % "3-1-4"
    )
    for arm in found.arms:
        assert arm.server.args == {"max_running_requests": 6, "cuda_graph_max_bs_decode": 8}
    queued = "max_running_requests 6 is below concurrency 32: load points above 6 measure the queue"
    assert any(warning.startswith(queued) for warning in found.warnings)


def test_mixed_chunking_is_taken_from_all_when_one_algorithm_drops_it(plan: Callable[..., Plan]) -> None:
    found = plan(
        "server: {model_path: /m/target, args: {enable_mixed_chunk: true}}\nname: t\n"
        + SPEC % "3-1-4, {algorithm: ngram, num_draft_tokens: 8}"
    )
    assert all("enable_mixed_chunk" not in arm.server.args for arm in found.arms)
    assert labels(found) == ["baseline", "EAGLE3 3-1-4", "NGRAM 8"]


def test_without_a_speculative_section_only_the_baseline_is_measured(plan: Callable[..., Plan]) -> None:
    found = plan("workload: {concurrency: [1]}")
    assert labels(found) == ["baseline"]
    assert found.arms[0].server.args == {"tp_size": 2}


def test_layer_ids_that_capture_the_same_are_merged_and_unreached_ones_left_out(plan: Callable[..., Plan]) -> None:
    grid = "grid: {num_steps: [3], aux_layer_ids: [[2, 30, 58], [1, 29, 57], [3, 31, 59], [-1, 2, 30], [2, 30]]}"
    found = plan(f"speculative: {{draft_model_path: /m/draft, {grid}}}", target=DEEPSEEK)
    assert [(arm.label, arm.captured_layers) for arm in found.arms[1:]] == [
        ("3-1-4 ids=2,30,58", (2, 30, 58)),
        ("3-1-4 ids=3,31,59", (3, 31, 59)),
    ]
    assert found.merged[0].dropped == ("3-1-4 ids=1,29,57",)
    assert "all capture layers 2, 30, 58" in found.merged[0].reason
    assert "layer -1 of 61" in found.illegal[0].reason
    assert "takes 3 captured states, got 2" in found.illegal[1].reason


DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "kv_lora_rank": 512,
    "vocab_size": 128256,
    "max_position_embeddings": 4096,
}


def test_an_axis_with_a_value_twice_measures_it_once(plan: Callable[..., Plan]) -> None:
    found = plan(SPEC % "3-1-4" + "sweep: {server.args.attention_backend: [fa3, fa3]}")
    assert labels(found) == ["baseline attention=fa3", "3-1-4 attention=fa3"]
    assert found.merged[0].dropped == ("3-1-4 attention=fa3",)


def test_nextn_keeps_mixed_chunking_as_eagle_does(plan: Callable[..., Plan]) -> None:
    found = plan(
        "server: {model_path: /m/target, args: {enable_mixed_chunk: true}}\nname: t\n"
        "speculative: {algorithm: nextn, draft_model_path: /m/draft, configs: [3-1-4]}"
    )
    assert all(arm.server.args["enable_mixed_chunk"] is True for arm in found.arms)


def test_ids_are_stable_and_depend_on_what_is_measured_only(plan: Callable[..., Plan]) -> None:
    text = SPEC % "3-1-4" + "workload: {concurrency: [1], %s}\nrun: {repeats: %d}\n"
    one, two = plan(text % ("max_tokens: 64", 2)), plan(text % ("max_tokens: 64, stall_timeout_s: 9", 3))
    other = plan(text % ("max_tokens: 65", 2))
    assert [t.trial_id for t in one.trials] == [t.trial_id for t in two.trials]
    assert not {t.trial_id for t in one.trials} & {t.trial_id for t in other.trials}
    assert [arm.arm_id for arm in one.arms] == [arm.arm_id for arm in other.arms]
    assert one.plan_id != two.plan_id


def test_shipped_models_keep_their_ids_wherever_they_are_installed(experiment: Callable[[str], Experiment]) -> None:
    wanted = experiment("name: t\nserver: {model_path: 'toy:target'}\nengine: {device: cpu}\n")
    here = Facts(flags=shipped_table(), engine_version="0.5.23", paths={"toy:target": "/a/toy/target"})
    there = replace(here, paths={"toy:target": "/b/toy/target"})
    one, two = make_plan(wanted, here), make_plan(wanted, there)
    assert [t.trial_id for t in one.trials] == [t.trial_id for t in two.trials]
    assert (one.arms[0].server.model_path, two.arms[0].server.model_path) == ("/a/toy/target", "/b/toy/target")


def test_a_baseline_with_overrides_says_that_it_is_not_matched(plan: Callable[..., Plan]) -> None:
    found = plan(SPEC % "3-1-4" + "baseline: {args: {disable_radix_cache: true}}")
    assert found.arms[0].server.args["disable_radix_cache"] is True
    assert any("differs from its arms in disable_radix_cache" in warning for warning in found.warnings)


def test_ten_thousand_points_plan_quickly(plan: Callable[..., Plan]) -> None:
    steps = list(range(1, 51))
    text = (
        f"speculative: {{draft_model_path: /m/draft, grid: {{num_steps: {steps}, eagle_topk: [1, 2, 4, 8], "
        f"num_draft_tokens: [4, 8, 16, 32, 64]}}}}\n"
        f"sweep: {{server.args.chunked_prefill_size: {[1024 * n for n in range(1, 11)]}}}\n"
    )
    began = time.process_time()
    found = plan(text)
    took = time.process_time() - began
    points = len(found.arms) - 10 + len(found.illegal) + sum(len(m.dropped) for m in found.merged)
    assert points == 10_000
    assert took < 20, "an order of magnitude above what it takes"


triples = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 40))


@settings(max_examples=60, deadline=None)
@given(wanted=st.lists(triples, min_size=1, max_size=12))
def test_every_requested_point_is_an_arm_merged_or_illegal(
    facts: Callable[..., Facts], wanted: list[tuple[int, int, int]]
) -> None:
    configs = [f"{a}-{b}-{c}" for a, b, c in wanted]
    parsed = Experiment.model_validate(
        {
            "name": "t",
            "server": {"model_path": "/m/target"},
            "speculative": {"draft_model_path": "/m/draft", "configs": configs},
        }
    )
    found = make_plan(parsed, facts())
    arms = [arm for arm in found.arms if not arm.is_baseline]
    assert len(arms) + len(found.illegal) + sum(len(m.dropped) for m in found.merged) == len(configs)
    assert len({arm.label for arm in found.arms}) == len(found.arms)
    assert len({arm.arm_id for arm in found.arms}) == len(found.arms)
    assert {g.arm_id for g in found.launch_groups} == {arm.arm_id for arm in found.arms}


def test_an_algorithm_that_only_a_plugin_can_have_is_warned_of(plan: Callable[..., Plan]) -> None:
    head = "name: t\nserver: {model_path: /m/target, env: {SGLANG_PLUGINS: mine}}\n"
    found = plan(head + "speculative: {algorithm: mine, draft_model_path: /m/draft, configs: [3-1-4]}\n")
    assert any(warning.startswith("MINE is no algorithm that is known here") for warning in found.warnings)


def test_a_server_that_spans_nodes_says_where_it_can_run(plan: Callable[..., Plan]) -> None:
    found = plan("name: t\nserver: {model_path: /m/target, args: {nnodes: 2, tp_size: 4}}\n" + SPEC % "3-1-4")
    assert {arm.server.nodes for arm in found.arms} == {2}
    assert any("spans 2 nodes" in warning and "--ray-address" in warning for warning in found.warnings)


def test_a_size_is_planned_as_the_engine_reads_it(plan: Callable[..., Plan]) -> None:
    found = plan("name: t\nserver: {model_path: /m/target, args: {context_length: 8k}}\n" + SPEC % "3-1-4")
    assert [arm.server.args["context_length"] for arm in found.arms] == [8000, 8000]


def test_gpus_are_counted_by_whatever_name_a_release_gives_its_sizes(
    experiment: Callable[[str], Experiment], facts: Callable[..., Facts]
) -> None:
    """Older releases list --tensor-parallel-size first."""
    names = {"tensor-parallel-size": "tp-size", "pipeline-parallel-size": "pp-size", "data-parallel-size": "dp-size"}
    lines = [f"  --{long} {long.upper()}, --{short} {long.upper()}\n" for long, short in names.items()]
    table = parse_help("options:\n" + "".join(lines), "0.5.5")
    text = "name: t\nserver: {model_path: /m/target, args: {tp_size: 4, data_parallel_size: 2}}\n"
    planned = make_plan(experiment(text), replace(facts(), flags=table, engine_version="0.5.5"))
    assert [group.gpus for group in planned.launch_groups] == [8]
