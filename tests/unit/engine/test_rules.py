from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.core.trial import SpecConfig
from sweeper.engine.request import Request
from sweeper.engine.rules import Resolution, longest_accept, resolve, tree_limit

LLAMA = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 8192, "vocab_size": 1000}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "max_position_embeddings": 8192, "vocab_size": 1000}


def asked(
    triple: str | None = None,
    algorithm: str = "EAGLE3",
    *,
    draft_path: str | None = "/d",
    spec_args: dict[str, Any] | None = None,
    ids: tuple[int, ...] | None = None,
    **request: Any,
) -> Resolution:
    steps, topk, tokens = (int(n) if n != "x" else None for n in (triple or "x-x-x").split("-"))
    spec = SpecConfig(
        algorithm=algorithm,
        draft_model_path=draft_path,
        num_steps=steps,
        eagle_topk=topk,
        num_draft_tokens=tokens,
        aux_layer_ids=ids,
        args=spec_args or {},
    )
    return resolve(Request(spec=spec, **request))


def illegal(*args: Any, **more: Any) -> str:
    found = asked(*args, **more).illegal
    assert found is not None
    return found


def told(*args: Any, **more: Any) -> str:
    found = asked(*args, **more)
    assert found.illegal is None
    return "\n".join(found.notes)


def test_a_chain_gets_num_steps_plus_one_tokens_and_the_note_says_what_that_costs() -> None:
    found = asked("1-1-16")
    assert found.illegal is None
    assert found.spec.triple == "1-1-2"
    assert found.notes == (
        "at eagle_topk 1 the engine replaces num_draft_tokens 16 by num_steps + 1 = 2: at most 1 draft can be "
        "accepted, accept length at most 2.00 per verify step; for a window of 16 set num_steps to 15",
    )


def test_a_right_chain_has_nothing_to_be_said() -> None:
    assert asked("3-1-4").notes == ()


@pytest.mark.parametrize(
    ("triple", "limit"),
    [("1-4-5", None), ("1-4-6", 5), ("3-4-16", None), ("2-2-7", None), ("2-2-8", 7), ("5-8-64", None), ("3-2-4", None)],
)
def test_a_tree_holds_topk_plus_steps_minus_one_times_topk_squared(triple: str, limit: int | None) -> None:
    reason = asked(triple).illegal
    assert (reason is None) if limit is None else (reason is not None and f"at most {limit}, got" in reason)


def test_a_narrow_window_over_a_deep_tree_is_noted() -> None:
    assert "one path of 3 drafts or a shallower tree" in told("3-2-4")
    assert told("3-4-16") == ""


@given(st.integers(1, 20), st.integers(2, 8))
def test_the_tree_limit_is_the_number_of_candidates_the_engine_collects(steps: int, topk: int) -> None:
    candidates = topk
    for _ in range(steps - 1):
        candidates += topk * topk
    assert tree_limit(steps, topk) == candidates + 1
    assert asked(f"{steps}-{topk}-{tree_limit(steps, topk)}").illegal is None
    assert asked(f"{steps}-{topk}-{tree_limit(steps, topk) + 1}").illegal is not None


def test_the_accept_length_is_bounded_by_depth_and_window() -> None:
    assert longest_accept(3, 1, 4) == 4
    assert longest_accept(5, 4, 16) == 6
    assert longest_accept(5, 4, 3) == 3


def test_only_some_of_the_three_is_refused_before_the_engine_dies_of_it() -> None:
    assert "eagle_topk and num_draft_tokens missing" in illegal("3-x-x")
    assert "num_steps and eagle_topk missing" in illegal("x-x-4")
    assert "num_draft_tokens missing" in illegal("3-4-x")
    assert asked("3-1-x").spec.triple == "3-1-4"


def test_nothing_given_is_chosen_by_the_targets_class() -> None:
    assert asked(target=LLAMA).spec.triple == "5-4-8"
    assert asked(target=DEEPSEEK).spec.triple == "3-1-4"
    assert asked(algorithm="STANDALONE", target=LLAMA).spec.triple == "3-1-4"
    assert asked(target=None).spec.triple is None


def test_nextn_is_eagle() -> None:
    found = asked("3-1-4", "nextn", target=DEEPSEEK, draft_path=None)
    assert found.spec.algorithm == "EAGLE"
    assert any("NEXTN is EAGLE" in note for note in found.notes)
    assert any("target's own draft layer" in note for note in found.notes)


def test_a_draft_is_needed_where_the_target_has_none() -> None:
    assert "EAGLE3 needs a draft" in illegal("3-1-4", draft_path=None)
    assert "no draft layer of its own" in illegal("3-1-4", "EAGLE", draft_path=None, target=LLAMA)


def test_layer_ids_belong_to_eagle3() -> None:
    assert "only for EAGLE3" in illegal("3-1-4", "EAGLE", ids=(1, 2, 3))
    assert "only for EAGLE3" in illegal(None, "NGRAM", ids=(1, 2, 3))


def test_an_unknown_algorithm_needs_a_plugin() -> None:
    assert "a plugin must register it" in told("3-1-4", "MINE")


def test_ngram_takes_its_topk_from_the_breadth() -> None:
    found = asked("x-x-12", "NGRAM", spec_args={"ngram_max_bfs_breadth": 4})
    assert found.spec.triple == "3-4-12"
    assert found.spec.draft_model_path is None
    assert asked(None, "NGRAM").spec.triple == "1-10-12"
    assert "attention DP" in illegal(None, "NGRAM", args={"attn_dp_size": 2})
    assert "got 12" in illegal(
        None, "NGRAM", spec_args={"ngram_external_corpus_path": "/c", "ngram_external_sam_budget": 12}
    )


def test_block_algorithms_need_a_gpu() -> None:
    assert "needs a GPU" in illegal(None, "DFLASH", device="cpu")
    assert asked("x-x-8", "DFLASH").spec.triple == "1-1-8"
    assert "must agree" in illegal("x-x-8", "DFLASH", spec_args={"dflash_block_size": 16})


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"attention_backend": "trtllm_mha"}, "trtllm_mha only supports eagle_topk 1, got 4"),
        ({"decode_attention_backend": "trtllm_mha"}, "trtllm_mha only supports eagle_topk 1, got 4"),
        ({"attention_backend": "flashmla"}, "eagle_topk 4 with page_size 64 runs only on flashinfer, fa3, triton"),
        ({"attention_backend": "fa4", "page_size": 16}, "eagle_topk 4 with page_size 16 runs only on"),
        ({"attention_backend": "fa3", "page_size": 64}, None),
        ({"attention_backend": "triton", "page_size": 64}, None),
        ({"attention_backend": "fa4"}, None),
        ({"page_size": 64}, None),
        ({"pp_size": 2}, "use tp_size"),
    ],
)
def test_trees_run_only_on_some_backends(args: dict[str, Any], reason: str | None) -> None:
    found = asked("5-4-16", args=args).illegal
    assert (found is None) if reason is None else (found is not None and reason in found)


def test_chains_run_on_all_backends() -> None:
    assert asked("3-1-4", args={"attention_backend": "trtllm_mha", "page_size": 64}).illegal is None


def test_ngram_over_pages_is_for_flashinfer_alone() -> None:
    assert "runs only on flashinfer, got fa3" in illegal(
        None, "NGRAM", args={"attention_backend": "fa3", "page_size": 64}
    )


def test_rejection_sampling_wants_a_chain_and_one_vocabulary() -> None:
    on = {"use_rejection_sampling": True}
    draft = {"draft_vocab_size": 500}
    assert "needs eagle_topk 1, got 4" in illegal("5-4-16", spec_args=on)
    assert "one vocabulary, the draft has 500" in illegal("3-1-4", spec_args=on, target=LLAMA, draft=draft)
    assert asked("3-1-4", spec_args=on, target=LLAMA, draft={"draft_vocab_size": 1000}).illegal is None
    assert "ignores the accept thresholds" in illegal("3-1-4", spec_args={**on, "accept_threshold_acc": 0.9})
    assert "not STANDALONE" in illegal("3-1-4", "STANDALONE", spec_args=on)


def test_block_verification_brings_rejection_sampling_along() -> None:
    on = {"use_block_verification": True}
    assert "switches use_rejection_sampling on" in told("3-1-4", spec_args=on)
    assert "on a GPU" in illegal("3-1-4", spec_args=on, device="cpu")


def test_adaptive_starts_from_its_candidates_or_falls_back() -> None:
    on = {"adaptive": True}
    assert asked("x-1-x", spec_args=on).spec.triple == "3-1-4"
    assert "got num_steps 4" in illegal("4-1-5", spec_args=on)
    found = asked("5-4-16", spec_args=on)
    assert found.spec.triple == "5-4-16"
    assert "adaptive is switched off by the engine: it needs eagle_topk 1, got 4" in found.notes[0]


def test_a_draft_of_shorter_context_is_refused_unless_stretched() -> None:
    short = {"max_position_embeddings": 2048}
    reason = illegal("3-1-4", target=LLAMA, draft=short)
    assert "the draft's context is 2048, the target's 8192" in reason
    assert asked("3-1-4", target=LLAMA, draft=short, args={"context_length": 2048}).illegal is None
    note = told("3-1-4", target=LLAMA, draft=short, env={"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"})
    assert "stretches it to 8192" in note


def test_a_plain_draft_beside_a_quantised_target_is_warned_of() -> None:
    args = {"quantization": "modelopt_fp4"}
    bf16 = {"architectures": ["LlamaForCausalLMEagle3"], "dtype": "bfloat16"}
    mla = {"architectures": ["Eagle3DeepseekV2ForCausalLM"]}
    note = told("3-1-4", args=args, draft=bf16)
    assert "inherits quantization modelopt_fp4" in note and "unquant" in note and "bfloat16" in note
    assert told("3-1-4", draft=bf16) == ""
    assert told("3-1-4", args=args, draft=mla) == ""
    assert "fp8" in told("3-1-4", args={"quantization": "fp8"}, draft=mla)
    assert told("3-1-4", args=args, draft=bf16, spec_args={"draft_model_quantization": "unquant"}) == ""
    assert told("3-1-4", args=args, draft={**bf16, "quantization_config": {"quant_method": "fp8"}}) == ""


def test_lossy_and_simulated_acceptance_are_said() -> None:
    assert "not lossless" in told("3-1-4", spec_args={"accept_threshold_single": 0.8})
    assert "replaces real acceptance" in told("3-1-4", env={"SGLANG_SIMULATE_ACC_LEN": "3"})


def test_ignored_options_are_said() -> None:
    assert "token_map is ignored" in told("3-1-4", spec_args={"token_map": "/m.pt"})
    assert "has no effect with NGRAM" in told(None, "NGRAM", spec_args={"draft_window_size": 64})
    assert "give both or none" in illegal("3-1-4", spec_args={"draft_sink_size": 4})


def test_the_cpu_engine_has_no_overlap_under_speculation() -> None:
    assert "without overlap scheduling" in told("3-1-4", device="cpu")
