"""Which target layers would feed the draft, and are they those it was trained on?"""

from sweeper.core.finding import Finding
from sweeper.doctor.case import Case, Verdict, finding, verdict
from sweeper.engine.layers import Capture, captured_layers, ids_for
from sweeper.engine.version import TABLES_READ_UP_TO, release


def check_capture(case: Case) -> Verdict:
    """Layer ids, by target family and engine version."""
    if not case.eagle3_run:
        return Verdict(unchecked="layer ids: nothing is captured with this algorithm")
    if not case.config.use_aux:
        return Verdict(findings=(_capture_off(case),))
    if case.config.misread_layer_ids is not None:
        return Verdict(findings=(_misread(case),))
    target = case.target
    if target is None or target.architecture is None or target.num_hidden_layers is None:
        return Verdict(unchecked="layer ids: the target's class and depth are not known")
    if case.capture is None:
        return _no_capture(case, target.architecture)
    found = [_unreached(case, case.capture), _reordered(case, case.capture), *_offsets(case, case.capture)]
    found += [_stray(case, case.capture), _default_used(case, case.capture)]
    return verdict(found, f"layer ids: {_ids(case)} captures the inputs of layers {list(case.capture.layers)}")


def _ids(case: Case) -> str:
    return "the default" if case.config.layer_ids is None else str(list(case.config.layer_ids))


def _capture_off(case: Case) -> Finding:
    return finding(
        "error",
        "capture-off",
        "eagle_config.use_aux_hidden_state is false: the engine captures nothing, the draft gets only the last state "
        f"of {case.config.width_in} and its fc is skipped in silence.",
        "Set use_aux_hidden_state to true, unless the draft was trained on the last state alone.",
    )


def _misread(case: Case) -> Finding:
    return finding(
        "error",
        "layer-ids-malformed",
        f"In eagle_config, {case.config.misread_layer_ids!r} stands where a list of layer numbers belongs; the engine "
        "fails at start, or takes its default without a word.",
        'Write "eagle_config": {"eagle_aux_hidden_state_layer_ids": [whole numbers]}.',
    )


def _no_capture(case: Case, architecture: str) -> Verdict:
    if release(case.version) > release(TABLES_READ_UP_TO):
        return Verdict(unchecked=f"layer ids: {architecture} is not in the table of SGLang {TABLES_READ_UP_TO}")
    return Verdict(
        findings=(
            finding(
                "error",
                "target-without-capture",
                f"{architecture} of SGLang {case.version} has no set_eagle3_layers_to_capture; the server refuses to "
                "start with EAGLE3.",
                "Use an engine version that supports EAGLE3 on this target, or another algorithm.",
            ),
        )
    )


def _unreached(case: Case, capture: Capture) -> Finding | None:
    if not capture.unreached:
        return None
    asked = len(capture.layers) + len(capture.unreached)
    depth = case.target.num_hidden_layers if case.target else None
    end = "fails at start" if capture.crashes else f"captures {len(capture.layers)} of {asked} and fails, or feeds less"
    return finding(
        "error",
        "layer-ids-unreached",
        f"Ids {_ids(case)} ask for layers {list(capture.unreached)}, which no forward pass of a {depth}-layer target "
        f"meets ({capture.rule}); the engine {end}.",
        "Name ids inside the target; see which layers the draft was trained on with `sweeper diagnose wiring`.",
    )


def _reordered(case: Case, capture: Capture) -> Finding | None:
    if not capture.reordered or capture.unreached:
        return None
    return finding(
        "warning",
        "layer-ids-reordered",
        f"Ids {_ids(case)} are not ascending; the engine always captures in layer order {list(capture.layers)}.",
        "Fine only if the draft was trained on the states in layer order.",
    )


def _offsets(case: Case, capture: Capture) -> tuple[Finding | None, ...]:
    """Off by one against the default; a warning only where the written ids are the default's own layers."""
    assert case.target is not None
    assert case.target.architecture is not None and case.target.num_hidden_layers is not None
    ids, depth, name = case.config.layer_ids, case.target.num_hidden_layers, case.target.architecture
    default = captured_layers(architecture=name, num_layers=depth, ids=None, version=case.version)
    if ids is None or default is None or capture.unreached or len(ids) != len(default.layers):
        return ()
    apart = {got - wanted for got, wanted in zip(capture.layers, default.layers, strict=True)}
    if apart not in ({1}, {-1}):
        return ()
    literal = tuple(ids) in (default.layers, (2, depth // 2, depth - 3))
    right = ids_for(architecture=name, num_layers=depth, layers=default.layers, version=case.version)
    return (
        finding(
            "warning" if literal else "note",
            "layer-ids-off-by-one",
            f"Ids {list(ids)} capture layers {list(capture.layers)} on {name} of SGLang {case.version} "
            f"({capture.rule}); this differs from the default {list(default.layers)} by one.",
            f"If the draft was trained on the inputs of layers {list(default.layers)}, write {list(right or ())}; "
            "else keep the ids.",
        ),
    )


def _stray(case: Case, capture: Capture) -> Finding | None:
    stray = case.config.stray_layer_ids
    if stray is None or case.config.layer_ids is not None:
        return None
    assert case.target is not None
    assert case.target.architecture is not None and case.target.num_hidden_layers is not None
    meant = captured_layers(
        architecture=case.target.architecture,
        num_layers=case.target.num_hidden_layers,
        ids=stray,
        version=case.version,
    )
    same = meant is not None and meant.layers == capture.layers
    return finding(
        "note" if same else "error",
        "layer-ids-misplaced",
        f"eagle_aux_hidden_state_layer_ids {list(stray)} stands at the top level, where capture does not look: the "
        f"engine takes its default {list(capture.layers)}{', which is the same' if same else ''}.",
        'Move it into "eagle_config" (`sweeper doctor --fix` does it).',
    )


def _default_used(case: Case, capture: Capture) -> Finding | None:
    if case.config.layer_ids is not None or case.config.stray_layer_ids is not None:
        return None
    missing = "eagle_config names no layer ids" if case.config.eagle_config_found else "there is no eagle_config"
    return finding(
        "note",
        "layer-ids-default",
        f"{missing[0].upper()}{missing[1:]}; the engine captures its default {list(capture.layers)}.",
        "Right for drafts trained on the default layers.",
    )


def check_widths(case: Case) -> Verdict:
    """What the engine would send against what fc takes."""
    config, target = case.config, case.target
    if not case.eagle3_draft:
        return Verdict(unchecked="widths")
    found = [_null_width(case), _one_state(case)]
    if target is None or target.hidden_size is None or config.width_in is None:
        return Verdict(findings=tuple(item for item in found if item), unchecked="widths: no target to compare with")
    found += [_hidden(case, target.hidden_size), _count(case), _embedding(case)]
    return verdict(found, f"widths: {config.num_aux} states of {target.hidden_size}, as fc takes them")


def _null_width(case: Case) -> Finding | None:
    null = case.config.names_target_hidden and case.config.target_hidden_size is None
    if not null or case.kind != "eagle3-llama":
        return None
    return finding(
        "error",
        "target-hidden-null",
        "target_hidden_size is null; this class multiplies it and fails at load.",
        "Remove target_hidden_size or set it to the target's hidden_size.",
    )


def _one_state(case: Case) -> Finding | None:
    if case.config.num_aux != 1 or case.config.own_embedding or not case.eagle3_run:
        return None
    return finding(
        "error",
        "fc-skipped",
        "Only one target layer is captured, so the state is as wide as the embedding and the engine skips fc in "
        "silence.",
        "Train the draft on two or more layers, or without fc.",
    )


def _hidden(case: Case, hidden: int) -> Finding | None:
    config = case.config
    if config.width_in == hidden:
        return None
    key = "target_hidden_size" if config.names_target_hidden else "hidden_size"
    return finding(
        "error",
        "hidden-size-differs",
        f"The draft's {key} is {config.width_in}, the target's hidden_size {hidden}: fc takes "
        f"{(config.width_in or 0) * config.num_aux} values where the engine would deliver {hidden * config.num_aux}.",
        "Use a draft of this target; a smaller draft must say target_hidden_size.",
    )


def _count(case: Case) -> Finding | None:
    capture, aux = case.capture, case.config.num_aux
    if capture is None or capture.unreached or len(capture.layers) == aux or not case.eagle3_run:
        return None
    return finding(
        "error",
        "aux-count",
        f"The engine captures {len(capture.layers)} layers {list(capture.layers)}, the draft's fc is built for {aux}.",
        "Name as many layer ids as the draft was trained on; num_aux_hidden_states must agree.",
    )


def _embedding(case: Case) -> Finding | None:
    if case.loading is None or "embed_tokens.weight" not in case.loading.unfilled:
        return None
    return finding(
        "error",
        "embedding-missing",
        f"target_hidden_size {case.config.target_hidden_size} differs from hidden_size {case.config.hidden_size}, so "
        "the target's embedding cannot be shared, and the checkpoint has no embed_tokens.weight.",
        "Export the draft with its embed_tokens.weight.",
    )
