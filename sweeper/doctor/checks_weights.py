"""Would every tensor be read, every parameter be filled, and every shape fit?"""

from collections.abc import Iterable

from sweeper.core.finding import Finding
from sweeper.doctor.case import Case, Verdict, finding, some, verdict
from sweeper.engine.checkpoints import (
    LAYERS_NAMES_SINCE,
    LLAMA_EAGLE3,
    MLA_EAGLE3,
    NORM_BEFORE_FC_SINCE,
    Loading,
    draft_class,
    parameters,
    reads_fc_norm,
    reads_norm_before_fc,
)
from sweeper.engine.version import release

_NO_WEIGHTS = "no weights in the draft folder"
_FLOATS = ("BF16", "F16", "F32", "F8_E4M3", "F8_E5M2", "F64")
_ELSEWHERE = ("lm_head.weight", "embed_tokens.weight")
"""Parameters that have a check of their own."""


def check_names(case: Case) -> Verdict:
    if case.loading is None:
        return Verdict(unchecked=f"names: {_NO_WEIGHTS}" if not case.manifest.tensors else "names: unknown class")
    dropped = [name for name in case.loading.dropped if not _harmless(name) and not _is_norm(name)]
    unfilled = [name for name in case.loading.unfilled if name not in _ELSEWHERE and not _is_norm(name)]
    if case.config.num_hidden_layers and case.config.num_hidden_layers > 1:
        unfilled = [name for name in unfilled if not name.startswith("layers.") or name.startswith("layers.0.")]
    read = len(case.manifest.tensors) - len(case.loading.dropped)
    clean = f"names: all {read} tensors are read by {_reader(case)} of SGLang {case.version}"
    return verdict([_names(case, dropped, unfilled), _doubled(case)], clean)


def _reader(case: Case) -> str:
    """The class that reads them; by its kind when `architectures` names another (check_architecture says so)."""
    named = case.config.architecture
    if named and draft_class(named) == case.kind:
        return named
    return {"eagle3-llama": LLAMA_EAGLE3, "eagle3-mla": MLA_EAGLE3}.get(case.kind or "", "the class they belong to")


def _names(case: Case, dropped: list[str], unfilled: list[str]) -> Finding | None:
    noise = "logs one line each" if case.kind == "eagle3-mla" else "says nothing"
    if dropped and unfilled:
        return finding(
            "error",
            "weights-dropped",
            f"SGLang {case.version} does not read {len(dropped)} tensors ({some(dropped)}) and {noise}; "
            f"{len(unfilled)} parameters keep uninitialised values ({some(unfilled)}): accept length near 1.",
            _renaming(case, dropped),
        )
    if unfilled:
        return finding(
            "error",
            "weights-missing",
            f"No tensor fills {len(unfilled)} parameters ({some(unfilled)}); they keep uninitialised values, "
            "without an error.",
            "Export the draft again with all its weights.",
        )
    if dropped:
        trained = any(part in name for name in dropped for part in ("layer", "fc", "norm", "head", "attn", "mlp"))
        return finding(
            "error" if trained else "warning",
            "weights-dropped" if trained else "weights-unread",
            f"SGLang {case.version} does not read {len(dropped)} tensors ({some(dropped)}) and {noise}; "
            "this class has no such parameters.",
            "Train or export the draft without them; the engine computes as if they were not there.",
        )
    return None


def _doubled(case: Case) -> Finding | None:
    doubled = case.loading.doubled if case.loading else {}
    if not doubled:
        return None
    first = next(iter(doubled.values()))
    return finding(
        "error",
        "weights-doubled",
        f"{len(doubled)} parameters are filled by more than one tensor ({some(first)} are the same parameter); the one "
        "that the engine reads last stays, without a word.",
        "Export the draft again into an empty folder; two exports seem to lie in this one.",
    )


def _renaming(case: Case, dropped: Iterable[str]) -> str:
    if case.kind == "eagle3-mla" and any(name.startswith("model.") for name in dropped):
        return "Strip the leading `model.` from the names (`sweeper doctor --fix` does it)."
    old = release(case.version) < release(LAYERS_NAMES_SINCE)
    if case.kind == "eagle3-llama" and old and any("layers.0." in name for name in dropped):
        return (
            f"Rename layers.0.* to midlayer.* (`sweeper doctor --fix --engine-version {case.version}` does it), "
            f"or use SGLang {LAYERS_NAMES_SINCE} or newer, which reads both."
        )
    return "Rename them to the names this class reads (`sweeper doctor --fix` does what it can)."


def _harmless(name: str) -> bool:
    return "rotary_emb" in name or "lm_head" in name


def _is_norm(name: str) -> bool:
    return any(part in name for part in ("fc_norm", "aux_norm", "input_norm"))


def check_shapes(case: Case) -> Verdict:
    if case.loading is None or case.kind is None:
        return Verdict(unchecked=f"shapes: {_NO_WEIGHTS}" if not case.manifest.tensors else "shapes: unknown class")
    wanted = parameters(case.config, case.kind, case.version)
    wrong: dict[str, list[str]] = {}
    for item in case.loading.placements:
        tensor = case.manifest.tensors[item.name]
        if item.parameter is None or tensor.dtype not in _FLOATS or not item.name.endswith(item.parameter[-6:]):
            continue
        shape = wanted[item.parameter].shape
        if len(shape) != len(tensor.shape) or any(w not in (None, h) for w, h in zip(shape, tensor.shape, strict=True)):
            expected = ["?" if size is None else size for size in shape]
            code = _shape_code(item.parameter, shape, tensor.shape)
            wrong.setdefault(code, []).append(f"{item.name} is {list(tensor.shape)}, needed {expected}")
    found = [_shape_finding(case, code, lines) for code, lines in wrong.items()]
    return verdict(found, "shapes: every tensor has the shape its config asks for (q/k/v twice as wide is right)")


def _shape_code(parameter: str, wanted: tuple[int | None, ...], held: tuple[int, ...]) -> str:
    same_rows = wanted[:1] == held[:1] or wanted[0] is None
    if parameter == "fc.weight" and same_rows:
        return "fc-width"
    inputs = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "q_a_proj.weight", "kv_a_proj_with_mqa.weight")
    return "attention-width" if parameter.endswith(inputs) and same_rows else "shape-mismatch"


def _shape_finding(case: Case, code: str, lines: list[str]) -> Finding:
    width, aux = case.config.width_in, case.config.num_aux
    evidence, remedy = {
        "fc-width": (
            f"{lines[0]}: its input must be {aux} target states of {width}.",
            "Name as many layer ids as fc was trained on, or use the checkpoint of this config.",
        ),
        "attention-width": (
            f"{some(lines)}: an EAGLE-3 layer takes embedding and fused state side by side, 2 x hidden_size. "
            "This is an ordinary or EAGLE-1/2 layer.",
            "Use an EAGLE-3 draft, or the algorithm and class this layer was trained for.",
        ),
        "shape-mismatch": (f"{some(lines)}.", "Use the config.json that was saved with these weights."),
    }[code]
    return finding("error", code, evidence + " The server fails while it loads the draft.", remedy)


def check_norms(case: Case) -> Verdict:
    if case.loading is None or case.kind is None or not case.eagle3_draft:
        return Verdict(unchecked="optional norms")
    found = [_fc_norm(case, case.loading), _norm_before_fc(case, case.loading), _norm_output(case)]
    return verdict(found, "optional norms: config flags and norm tensors agree")


def _fc_norm(case: Case, loading: Loading) -> Finding | None:
    held = [n for n in loading.dropped if "fc_norm" in n or "aux_norm" in n]
    reads = case.kind is not None and reads_fc_norm(case.kind, case.version)
    if held:
        why = "the config does not say `fc_norm: true`" if reads else f"SGLang {case.version} has no such norms"
        fix = "Set fc_norm to true in config.json." if reads else "Use SGLang 0.5.13 or newer."
        if reads and case.kind == "eagle3-mla":
            fix += " This class reads them only as fc_norm.0, fc_norm.1, fc_norm.2."
        return finding("error", "norm-unread", f"{some(held)} would be dropped in silence: {why}.", fix)
    missing = [name for name in loading.unfilled if "fc_norm" in name]
    if missing:
        return _norm_missing(missing, "fc_norm")
    return None


def _norm_before_fc(case: Case, loading: Loading) -> Finding | None:
    held = [name for name in loading.dropped if "input_norm" in name]
    reads = case.kind is not None and reads_norm_before_fc(case.kind, case.version)
    if held or (case.config.norm_before_fc and not reads):
        why = (
            "the config does not say `norm_before_fc: true`" if reads else "this class of this release has no such norm"
        )
        fix = "Set norm_before_fc to true in eagle_config." if reads else _norm_before_fc_fix(case)
        return finding("error", "norm-unread", f"The norm before fc would be left out in silence: {why}.", fix)
    missing = [name for name in loading.unfilled if "input_norm" in name]
    return _norm_missing(missing, "norm_before_fc") if missing else None


def _norm_before_fc_fix(case: Case) -> str:
    if case.kind == "eagle3-mla":
        return "Eagle3DeepseekV2ForCausalLM never applies it; train the draft without it."
    return f"Use SGLang {NORM_BEFORE_FC_SINCE} or newer."


def _norm_missing(names: list[str], flag: str) -> Finding:
    return finding(
        "error",
        "norm-missing",
        f"The config says {flag}, but no tensor fills {some(names)}; the engine would normalise with ones.",
        f"Export the draft with its norm weights, or remove {flag} if it was trained without.",
    )


def _norm_output(case: Case) -> Finding | None:
    if not case.config.norm_output or case.kind is None or reads_fc_norm(case.kind, case.version):
        return None
    return finding(
        "error",
        "norm-unread",
        f"The config says norm_output, which SGLang {case.version} ignores: from the second draft step on the draft "
        "gets states it was not trained on.",
        "Use SGLang 0.5.13 or newer.",
    )
