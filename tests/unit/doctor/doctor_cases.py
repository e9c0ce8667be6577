"""Drafts with one fault each, beside the sound ones; writes the table of docs/doctor.md.

`python tests/unit/doctor/doctor_cases.py` writes the table again.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from drafts import Draft, eagle2_draft, examine_draft, ids, standalone_model
from sound_drafts import LLAMA, LLAMA31, LLAMA_TARGET, MLA, SOUND

from sweeper.core.finding import Finding
from sweeper.doctor.examine import Diagnosis

DOCS = Path(__file__).parents[3] / "docs" / "doctor.md"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A draft with one thing wrong, and the code that must say so."""

    case: str
    what: str
    draft: Draft
    expected: str | None
    """Code of the one error or warning; None: silence."""
    severity: str = "error"
    question: Mapping[str, Any] = field(default_factory=dict)


_OFFSETS = list(LLAMA.values["d2t"])
_ABSOLUTE = [index + offset for index, offset in enumerate(_OFFSETS)]
_KIMI_LLAMA = SOUND["Kimi K2.5 multimodal, Llama class"][0]
_NEW_NAMES = LLAMA.renamed("midlayer.", "layers.0.")
_OLD = {"version": "0.5.10"}
_STANDALONE = {"algorithm": "STANDALONE"}
_ROPE = {"rope_theta": 1e6, "rope_scaling": None}


def _left_out(draft: Draft, *keys: str) -> Draft:
    return replace(draft, config={key: value for key, value in draft.config.items() if key not in keys})


def _with(draft: Draft, **tensors: tuple[int, ...]) -> Draft:
    return replace(draft, tensors={**draft.tensors, **{name: ("BF16", shape) for name, shape in tensors.items()}})


FAULTS: tuple[Fault, ...] = (
    Fault(case="B01", what="layers.0.* on 0.5.10", draft=_NEW_NAMES, expected="weights-dropped", question=_OLD),
    Fault(
        case="B01",
        what="model.layers.0.* on 0.5.10",
        draft=LLAMA.renamed("midlayer.", "model.layers.0."),
        expected="weights-dropped",
        question=_OLD,
    ),
    Fault(case="B01", what="midlayer.* on 0.5.10", draft=LLAMA, expected=None, question=_OLD),
    Fault(case="B01", what="layers.0.* on 0.5.23", draft=_NEW_NAMES, expected=None),
    Fault(
        case="B01",
        what="model.* in the MLA class",
        draft=MLA.renamed("midlayer.", "model.midlayer."),
        expected="weights-dropped",
    ),
    Fault(case="B02", what="MLA, draft_vocab_size set, no head", draft=MLA.without("lm_head"), expected="head-missing"),
    Fault(
        case="B02",
        what="MLA, no draft_vocab_size, no head",
        draft=MLA.without("lm_head").configured(draft_vocab_size=None),
        expected=None,
    ),
    Fault(
        case="B03",
        what="architectures LlamaForCausalLM",
        draft=LLAMA.configured(architectures=["LlamaForCausalLM"]),
        expected="draft-architecture",
    ),
    Fault(
        case="B03",
        what="40 layers declared, one held",
        draft=LLAMA.configured(num_hidden_layers=40),
        expected="layer-count",
    ),
    Fault(case="B04", what="d2t holds absolute ids", draft=LLAMA.mapped(_ABSOLUTE), expected="d2t-absolute-ids"),
    Fault(case="B04", what="d2t is arange", draft=LLAMA.mapped(list(range(32000))), expected="d2t-arange"),
    Fault(
        case="B04",
        what="d2t leaves the vocabulary",
        draft=LLAMA.mapped([*_OFFSETS[:-1], 96257]),
        expected="d2t-out-of-range",
    ),
    Fault(case="B04", what="d2t all zero against t2d", draft=LLAMA.mapped([0] * 32000), expected="d2t-disagrees"),
    Fault(case="B04", what="no d2t", draft=LLAMA.without("d2t", "t2d"), expected="d2t-missing"),
    Fault(
        case="B06",
        what="EAGLE for an EAGLE-3 draft",
        draft=_KIMI_LLAMA,
        expected="algorithm-eagle-for-eagle3",
        question={"algorithm": "EAGLE"},
    ),
    Fault(
        case="B06",
        what="NEXTN for an EAGLE-3 draft",
        draft=_KIMI_LLAMA,
        expected="algorithm-eagle-for-eagle3",
        question={"algorithm": "NEXTN"},
    ),
    Fault(
        case="B08",
        what="default layers as ids on Qwen3-MoE (always + 1)",
        draft=SOUND["Qwen3-MoE 30B"][0].configured(eagle_config=ids(2, 24, 45)),
        expected="layer-ids-off-by-one",
        severity="warning",
    ),
    Fault(
        case="B08",
        what="the story: [2, 30, 58] on Kimi before 0.5.13 (always + 1)",
        draft=_KIMI_LLAMA,
        expected="layer-ids-off-by-one",
        severity="warning",
        question={"version": "0.5.12.post1"},
    ),
    Fault(
        case="B08",
        what="the story: [-1, 2, 30] on Kimi",
        draft=_KIMI_LLAMA,
        expected="layer-ids-unreached",
        question={"aux_layer_ids": [-1, 2, 30]},
    ),
    Fault(
        case="B10",
        what="fc for two states, three named",
        draft=LLAMA.reshaped("fc.weight", 4096, 8192),
        expected="fc-width",
    ),
    Fault(
        case="B10",
        what="q_proj as wide as hidden_size",
        draft=LLAMA.reshaped("midlayer.self_attn.q_proj.weight", 4096, 4096),
        expected="attention-width",
    ),
    Fault(case="B10", what="q/k/v twice as wide", draft=LLAMA, expected=None),
    Fault(
        case="B12",
        what="draft of a 4096-wide target on an 8192-wide one",
        draft=replace(LLAMA, target={**LLAMA_TARGET, "hidden_size": 8192, "num_hidden_layers": 80}),
        expected="hidden-size-differs",
    ),
    Fault(
        case="B12",
        what="target_hidden_size differs, no own embedding",
        draft=SOUND["smaller draft for Llama 70B"][0].without("embed_tokens"),
        expected="embedding-missing",
    ),
    Fault(
        case="B14",
        what="rope theta and scaling differ",
        draft=LLAMA.configured(**_ROPE),
        expected="rope-differs",
        severity="warning",
    ),
    Fault(
        case="B14",
        what="rope_parameters against rope_theta + rope_scaling, equal",
        draft=LLAMA.configured(rope_theta=None, rope_scaling=None, rope_parameters={**LLAMA31, "rope_theta": 500000.0}),
        expected=None,
    ),
    Fault(
        case="B18",
        what="tied, reduced vocabulary",
        draft=LLAMA.configured(tie_word_embeddings=True),
        expected="tied-head",
    ),
    Fault(
        case="B18",
        what="tied, full vocabulary, no head",
        draft=LLAMA.without("lm_head", "d2t", "t2d").configured(tie_word_embeddings=True, draft_vocab_size=128256),
        expected=None,
    ),
    Fault(
        case="A06",
        what="bf16 draft, --quantization fp8",
        draft=LLAMA,
        expected="draft-inherits-quantization",
        severity="warning",
        question={"args": {"quantization": "fp8"}},
    ),
    Fault(
        case="A06",
        what="MLA draft, --quantization modelopt_fp4",
        draft=MLA,
        expected=None,
        question={"args": {"quantization": "modelopt_fp4"}},
    ),
    Fault(
        case="A06",
        what="bf16 draft, unquant given",
        draft=LLAMA,
        expected=None,
        question={"args": {"quantization": "fp8", "speculative_draft_model_quantization": "unquant"}},
    ),
    Fault(
        case="C12",
        what="SGLANG_SIMULATE_ACC_LEN=2.5",
        draft=LLAMA,
        expected="simulated-acceptance",
        question={"env": {"SGLANG_SIMULATE_ACC_LEN": "2.5"}},
    ),
    Fault(
        case="C12",
        what="SGLANG_SIMULATE_ACC_LEN=-1",
        draft=LLAMA,
        expected=None,
        question={"env": {"SGLANG_SIMULATE_ACC_LEN": "-1"}},
    ),
    Fault(
        case="norms",
        what="fc_norm weights, flag off",
        draft=SOUND["EAGLE-3.1, two layers, all norms"][0].configured(fc_norm=False),
        expected="norm-unread",
    ),
    Fault(
        case="norms",
        what="norm_before_fc before 0.5.17",
        draft=SOUND["EAGLE-3.1, two layers, all norms"][0],
        expected="norm-unread",
        question={"version": "0.5.16"},
    ),
    Fault(case="norms", what="fc_norm flag, no weights", draft=LLAMA.configured(fc_norm=True), expected="norm-missing"),
    Fault(
        case="ids",
        what="ids at the top level only",
        draft=_KIMI_LLAMA.configured(eagle_config=None, eagle_aux_hidden_state_layer_ids=[5, 20, 40]),
        expected="layer-ids-misplaced",
    ),
    Fault(
        case="ids",
        what="use_aux_hidden_state false",
        draft=LLAMA.configured(eagle_config={"use_aux_hidden_state": False}),
        expected="capture-off",
    ),
    Fault(
        case="context",
        what="draft 2048, target 65536",
        draft=LLAMA.configured(max_position_embeddings=2048),
        expected="context-shorter",
    ),
    Fault(
        case="vocabulary",
        what="no draft_vocab_size key in the Llama class",
        draft=replace(LLAMA, config={k: v for k, v in LLAMA.config.items() if k != "draft_vocab_size"}).without(
            "lm_head", "d2t", "t2d"
        ),
        expected="draft-vocab-key-missing",
    ),
    Fault(
        case="heads",
        what="32 heads for a width of 4080",
        draft=Draft(config={**LLAMA.config, "hidden_size": 4080}, tensors={}, target=None),
        expected="heads-do-not-divide",
    ),
    Fault(
        case="class",
        what="EAGLE3 with an EAGLE-2 draft",
        draft=eagle2_draft(),
        expected="algorithm-eagle3-for-eagle",
    ),
    Fault(
        case="class",
        what="an ordinary model in place of a draft",
        draft=LLAMA.configured(architectures=["LlamaForCausalLM"])
        .without("fc.", "hidden_norm", "d2t", "t2d")
        .renamed("midlayer.", "model.layers.0."),
        expected="draft-is-a-model",
    ),
    Fault(case="defaults", what="no model_type", draft=_left_out(LLAMA, "model_type"), expected="model-type-missing"),
    Fault(
        case="defaults",
        what="no max_position_embeddings: 2048",
        draft=_left_out(LLAMA, "max_position_embeddings"),
        expected="context-shorter",
    ),
    Fault(
        case="defaults",
        what="no rope keys: theta 10000",
        draft=_left_out(LLAMA, "rope_theta", "rope_scaling"),
        expected="rope-differs",
        severity="warning",
    ),
    Fault(
        case="defaults",
        what="gemma3_text without tie_word_embeddings: tied",
        draft=_left_out(SOUND["Gemma 3 12B multimodal"][0].configured(model_type="gemma3_text"), "tie_word_embeddings"),
        expected="tied-head",
    ),
    Fault(
        case="ids",
        what="ids as words",
        draft=LLAMA.configured(eagle_config={"eagle_aux_hidden_state_layer_ids": ["1", "15", "28"]}),
        expected="layer-ids-malformed",
    ),
    Fault(
        case="ids",
        what="eagle_config as one string",
        draft=LLAMA.configured(eagle_config='{"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}'),
        expected="layer-ids-malformed",
    ),
    Fault(
        case="names",
        what="two exports in one folder",
        draft=replace(LLAMA, tensors={**LLAMA.tensors, **_NEW_NAMES.tensors}),
        expected="weights-doubled",
    ),
    Fault(
        case="names",
        what="biases of q, k and v",
        draft=_with(LLAMA, **{f"midlayer.self_attn.{part}_proj.bias": (4096,) for part in "qkv"}),
        expected="weights-dropped",
    ),
    Fault(
        case="names",
        what="norms of q and k",
        draft=_with(LLAMA, **{f"midlayer.self_attn.{part}_norm.weight": (128,) for part in "qk"}),
        expected="weights-dropped",
    ),
    Fault(
        case="activation",
        what="hidden_act gelu",
        draft=LLAMA.configured(hidden_act="gelu"),
        expected="activation-unsupported",
    ),
    Fault(
        case="d2t",
        what="offsets of the wrong sign",
        draft=LLAMA.mapped([-n for n in _OFFSETS]),
        expected="d2t-out-of-range",
    ),
    Fault(
        case="target",
        what="a target class without capture",
        draft=replace(LLAMA, target={**LLAMA_TARGET, "architectures": ["MambaForCausalLM"]}),
        expected="target-without-capture",
    ),
    Fault(
        case="standalone",
        what="a model of other width, rope, dtype",
        draft=standalone_model(),
        expected=None,
        question=_STANDALONE,
    ),
    Fault(
        case="standalone",
        what="a model of another vocabulary",
        draft=standalone_model(vocab_size=1216),
        expected="vocabulary-size",
        question=_STANDALONE,
    ),
    Fault(
        case="standalone",
        what="an EAGLE-3 draft",
        draft=LLAMA,
        expected="algorithm-standalone-for-eagle3",
        question=_STANDALONE,
    ),
    Fault(
        case="standalone",
        what="a Qwen3-MoE model",
        draft=standalone_model(architectures=["Qwen3MoeForCausalLM"]),
        expected="draft-read-as-predictor",
        question=_STANDALONE,
    ),
    Fault(
        case="standalone",
        what="6 heads, tp_size 4",
        draft=standalone_model(),
        expected="heads-not-shardable",
        question={**_STANDALONE, "args": {"tp_size": 4}},
    ),
)


def serious(diagnosis: Diagnosis) -> list[Finding]:
    """Errors and warnings."""
    return [item for item in diagnosis.findings if item.severity != "note"]


def rows(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Case, input, expected, found: sound drafts first, then the faults."""
    for index, (family, (draft, algorithm)) in enumerate(SOUND.items()):
        found = serious(examine_draft(folder / f"sound-{index}", draft, algorithm=algorithm))
        yield "sound", f"{family}, {algorithm}", "silence", _cell(found)
    for index, fault in enumerate(FAULTS):
        found = serious(examine_draft(folder / f"fault-{index}", fault.draft, **fault.question))
        expected = f"{fault.severity} `{fault.expected}`" if fault.expected else "silence"
        yield fault.case, fault.what, expected, _cell(found)


def _cell(found: list[Finding]) -> str:
    return "; ".join(f"{item.severity} `{item.code}`: {item.evidence}" for item in found) or "silence"


START, END = "<!-- table written by tests/unit/doctor/doctor_cases.py -->", "<!-- end of table -->"


def table(folder: Path) -> str:
    lines = ["| case | input | expected | Sweeper says |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows(folder))])


def main() -> None:
    before, _, rest = DOCS.read_text().partition(START)
    after = rest.partition(END)[2]
    with tempfile.TemporaryDirectory() as folder:
        DOCS.write_text(f"{before}{START}\n{table(Path(folder))}\n{END}{after}")


if __name__ == "__main__":
    main()
