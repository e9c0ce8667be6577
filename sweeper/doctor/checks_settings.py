"""Settings of draft, target and server that change what the draft computes."""

from sweeper.core.finding import Finding
from sweeper.doctor.case import Case, Verdict, finding, some, verdict
from sweeper.engine.checkpoints import MLA_EAGLE3

_PLAIN = ("BF16", "F16", "F32", "I64", "I32", "BOOL", "U8")


def check_context(case: Case) -> Verdict:
    """The engine refuses a draft whose context is shorter than the target's."""
    draft = case.config.context_length
    asked = case.args.get("context_length")
    wanted = asked if isinstance(asked, int) else case.target.context_length if case.target else None
    if draft is None or wanted is None:
        return Verdict(unchecked="context length: not stated by both")
    overruled = case.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "0").lower() in ("1", "true")
    if draft >= wanted or overruled:
        return Verdict(excluded=f"context length: draft {draft}, served {wanted}")
    return Verdict(
        findings=(
            finding(
                "error",
                "context-shorter",
                f"The draft's context is {draft}, the target is served with {wanted}; the server refuses to start.",
                f"Serve with --context-length {draft}, or set SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1, which makes "
                "the engine overwrite the draft's number.",
            ),
        )
    )


def check_quantisation(case: Case) -> Verdict:
    """Unless told otherwise the draft takes the `--quantization` of the target."""
    method = case.args.get("quantization")
    own = case.args.get("speculative_draft_model_quantization")
    plain = case.config.quant_method is None and all(t.dtype in _PLAIN for t in case.manifest.tensors.values())
    if not method or method == "unquant" or own:
        return Verdict(excluded=f"quantisation: nothing inherited (draft: {own or case.config.quant_method or 'none'})")
    if not plain:
        return Verdict(excluded=f"quantisation: {method} is asked for and the draft is quantised itself")
    if case.config.architecture == MLA_EAGLE3 and method == "modelopt_fp4":
        return Verdict(excluded=f"quantisation: {MLA_EAGLE3} drops modelopt_fp4 by itself")
    dtypes = sorted({tensor.dtype for tensor in case.manifest.tensors.values() if "F" in tensor.dtype})
    return Verdict(
        findings=(
            finding(
                "warning",
                "draft-inherits-quantization",
                f"The draft would be loaded as {method}, taken from --quantization, but it has no quantization_config "
                f"and its tensors are {some(dtypes) or 'not quantised'}.",
                "Set speculative_draft_model_quantization: unquant.",
            ),
        )
    )


def check_rope(case: Case) -> Verdict:
    draft, target = case.config.rope, case.target.rope if case.target else None
    if draft is None or target is None:
        return Verdict(unchecked="rope: not stated by both")
    facts: list[str] = []
    if None not in (draft.theta, target.theta) and draft.theta != target.theta:
        facts.append(f"theta {draft.theta:.0f} against {target.theta:.0f}")
    if (draft.kind, draft.factor if draft.kind != "default" else None) != (
        target.kind,
        target.factor if target.kind != "default" else None,
    ):
        facts.append(f"scaling: {draft.scaling()} against {target.scaling()}")
    if not facts:
        return Verdict(excluded=f"rope: the same as the target's ({target.scaling()})")
    return Verdict(
        findings=(
            finding(
                "warning",
                "rope-differs",
                f"Draft against target: {'; '.join(facts)}. Some good drafts differ on purpose; a loss shows as "
                "acceptance that falls with context.",
                "If the draft was not trained so, copy the target's rope settings into its config.json.",
            ),
        )
    )


def check_activation(case: Case) -> Verdict:
    """The draft classes compute SiLU; anything else stops them at load."""
    named = case.config.activation
    if named is None or not case.eagle3_draft:
        return Verdict(unchecked="activation: not stated, or another class")
    wrong = finding(
        "error",
        "activation-unsupported",
        f"hidden_act is {named}; this class knows only silu and fails at load.",
        "Train the draft with silu. If it was, correct hidden_act: it was copied from the target.",
    )
    return verdict([wrong if named != "silu" else None], "activation: silu")


def check_dtype(case: Case) -> Verdict:
    draft, target = case.config.dtype, case.target.dtype if case.target else None
    if draft is None or target is None or case.args.get("dtype") not in (None, "auto"):
        return Verdict(unchecked="dtype: not stated by both, or given for both on the command line")
    found: Finding | None = None
    if {draft, target} == {"float16", "bfloat16"}:
        found = finding(
            "warning",
            "dtype-differs",
            f"The draft is {draft}, the target {target}; the states handed over have the target's dtype.",
            "Serve both in one dtype: --dtype bfloat16.",
        )
    return verdict([found], f"dtype: draft {draft}, target {target}")


def check_simulation(case: Case) -> Verdict:
    """SGLANG_SIMULATE_ACC_LEN > 0 replaces real acceptance by an invented one."""
    value = case.env.get("SGLANG_SIMULATE_ACC_LEN")
    if not simulated(value):
        return Verdict(excluded="simulated acceptance: off")
    return Verdict(
        findings=(
            finding(
                "error",
                "simulated-acceptance",
                f"SGLANG_SIMULATE_ACC_LEN={value}: the engine invents its acceptance and writes token 100; every "
                "figure of such a run is synthetic.",
                "Remove SGLANG_SIMULATE_ACC_LEN from the environment.",
            ),
        )
    )


def simulated(value: str | None) -> bool:
    """True for a number above 0; -1, unset and words are off."""
    try:
        return value is not None and float(value) > 0
    except ValueError:
        return False
