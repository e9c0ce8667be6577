"""The whole examination of a draft, from files alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweeper.core.finding import Finding
from sweeper.doctor.case import Case, Verdict
from sweeper.doctor.checks_capture import check_capture, check_widths
from sweeper.doctor.checks_pairing import (
    check_algorithm,
    check_architecture,
    check_heads,
    check_layer_count,
    check_model_type,
    kind_by_tensors,
)
from sweeper.doctor.checks_settings import (
    check_activation,
    check_context,
    check_dtype,
    check_quantisation,
    check_rope,
    check_simulation,
)
from sweeper.doctor.checks_standalone import (
    check_depth,
    check_model,
    check_sharding,
    check_token_map,
    check_unshared,
)
from sweeper.doctor.checks_vocabulary import check_d2t, check_head, check_vocabulary
from sweeper.doctor.checks_weights import check_names, check_norms, check_shapes
from sweeper.doctor.manifest import Manifest, read_config, read_manifest, read_values
from sweeper.engine.checkpoints import draft_class, load, other_draft_class
from sweeper.engine.draft_config import DraftConfig, TargetConfig, draft_config, model_draft_config, target_config
from sweeper.engine.layers import Capture, captured_layers

_CHECKS = (
    check_architecture,
    check_algorithm,
    check_layer_count,
    check_model_type,
    check_heads,
    check_names,
    check_shapes,
    check_norms,
    check_head,
    check_d2t,
    check_vocabulary,
    check_widths,
    check_capture,
    check_context,
    check_quantisation,
    check_rope,
    check_activation,
    check_dtype,
    check_simulation,
)
_STANDALONE_CHECKS = (
    check_model,
    check_depth,
    check_model_type,
    check_heads,
    check_vocabulary,
    check_token_map,
    check_sharding,
    check_context,
    check_quantisation,
    check_unshared,
    check_simulation,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What was found, what was looked at without result, and what could not be looked at."""

    findings: tuple[Finding, ...]
    """Errors first, then warnings, then notes."""
    captured_layers: tuple[int, ...] | None
    """Target layers whose input the engine would capture; None: not EAGLE3, or the target is not known."""
    excluded: tuple[str, ...]
    unchecked: tuple[str, ...] = ()

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(item for item in self.findings if item.severity == "error")


def examine(  # noqa: PLR0913  one question has this many parts, all keyword-only
    draft: Path,
    target: Path | None,
    *,
    version: str,
    algorithm: str,
    aux_layer_ids: Sequence[int] | None = None,
    args: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Examine the draft folder `draft` against the target folder (or config.json) `target`.

    `version` is the engine's; `args` are its server arguments (`quantization`, `context_length`, `dtype`,
    `speculative_draft_model_quantization`); `aux_layer_ids` replaces the ids of the draft's config.
    PreflightError when a file cannot be read.
    """
    ids = None if aux_layer_ids is None else tuple(aux_layer_ids)
    standalone = algorithm.upper() == "STANDALONE"
    manifest = read_manifest(draft, pickled_too=standalone)
    config = model_draft_config(manifest.config) if standalone else draft_config(manifest.config, ids)
    case = _case(manifest, config, target, version=version)
    return diagnose(replace(case, algorithm=algorithm.upper(), args=args or {}, env=env or {}))


def diagnose(case: Case) -> Diagnosis:
    """Run every check; pure."""
    verdicts = [check(case) for check in (_STANDALONE_CHECKS if case.standalone else _CHECKS)]
    order = {"error": 0, "warning": 1, "note": 2}
    findings = sorted((item for verdict in verdicts for item in verdict.findings), key=lambda f: order[f.severity])
    return Diagnosis(
        findings=tuple(findings),
        captured_layers=case.capture.layers if case.capture and case.eagle3_run and case.config.use_aux else None,
        excluded=_sentences(verdicts, "excluded"),
        unchecked=_sentences(verdicts, "unchecked"),
    )


def _sentences(verdicts: Sequence[Verdict], field: str) -> tuple[str, ...]:
    return tuple(text for verdict in verdicts if (text := getattr(verdict, field)) is not None)


def _case(manifest: Manifest, config: DraftConfig, target_path: Path | None, *, version: str) -> Case:
    if config.quant_method is None and (manifest.path / "hf_quant_config.json").is_file():
        config = replace(config, quant_method="modelopt")
    foreign = other_draft_class(config.architecture)
    kind = None if foreign else draft_class(config.architecture) or kind_by_tensors(manifest)
    target = None if target_path is None else target_config(read_config(target_path))
    return Case(
        version=version,
        algorithm="EAGLE3",
        manifest=manifest,
        config=config,
        kind=kind,
        loading=load(manifest.tensors, config, kind, version) if kind and manifest.tensors else None,
        target=target,
        capture=None if target is None else _capture(target, config.layer_ids, version),
        d2t=_values(manifest, "d2t"),
        t2d=_values(manifest, "t2d"),
        vocabularies=_vocabularies(manifest.path, target_path),
    )


def _capture(target: TargetConfig, ids: tuple[int, ...] | None, version: str) -> Capture | None:
    if target.architecture is None or target.num_hidden_layers is None:
        return None
    return captured_layers(
        architecture=target.architecture, num_layers=target.num_hidden_layers, ids=ids, version=version
    )


def _values(manifest: Manifest, word: str) -> Sequence[int] | None:
    tensor = manifest.named(word)
    return read_values(tensor) if tensor is not None and tensor.is_list_of_integers else None


def _vocabularies(draft: Path, target: Path | None) -> tuple[Mapping[str, int], Mapping[str, int]] | None:
    if target is None:
        return None
    files = (draft / "tokenizer.json", (target if target.is_dir() else target.parent) / "tokenizer.json")
    if not all(file.is_file() for file in files) or files[0].read_bytes() == files[1].read_bytes():
        return None
    ours, theirs = (_vocabulary(file) for file in files)
    return (ours, theirs) if ours and theirs else None


def _vocabulary(file: Path) -> Mapping[str, int]:
    try:
        tokens = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return tokens if isinstance(tokens, Mapping) else {}
