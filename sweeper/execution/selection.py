"""`--only 'steps=3,topk=1'`: the trials that match, with the baselines they are compared with. Pure."""

from typing import Any

from sweeper.core.trial import Arm, Plan, Trial
from sweeper.errors import ConfigError

ALIASES = {
    "steps": "num_steps",
    "topk": "eagle_topk",
    "tokens": "num_draft_tokens",
    "draft_tokens": "num_draft_tokens",
    "draft": "draft_model_path",
    "ids": "aux_layer_ids",
    "label": "arm",
}


def select(plan: Plan, only: str) -> frozenset[str]:
    """Trial ids; every condition must hold. Raises ConfigError for an unknown key or when nothing matches."""
    conditions = _parse(only)
    chosen = [trial for trial in plan.trials if _matches(plan.arm(trial.arm_id), trial, conditions)]
    if not chosen:
        labels = ", ".join(arm.label for arm in plan.arms)
        raise ConfigError(f"--only {only}: no trial matches; the arms are {labels}")
    wanted = {(plan.arm(trial.arm_id).baseline_id, trial.load) for trial in chosen}
    baselines = [trial for trial in plan.trials if (trial.arm_id, trial.load) in wanted]
    return frozenset(trial.trial_id for trial in [*chosen, *baselines])


def _parse(only: str) -> dict[str, str]:
    conditions = {}
    for part in only.split(","):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--only {only}: {part!r} is not KEY=VALUE; write e.g. --only 'steps=3,topk=1'")
        plain = key.strip().replace("-", "_")
        conditions[ALIASES.get(plain, plain)] = value.strip()
    return conditions


def _matches(arm: Arm, trial: Trial, conditions: dict[str, str]) -> bool:
    facts = _facts(arm, trial)
    for key, value in conditions.items():
        if key not in facts:
            known = ", ".join(sorted(facts))
            raise ConfigError(f"--only: unknown key {key}; known are {known}")
        if str(facts[key]) != value:
            return False
    return True


def _facts(arm: Arm, trial: Trial) -> dict[str, Any]:
    spec = arm.server.spec
    ids = spec.aux_layer_ids if spec else None
    return {
        "arm": arm.label,
        "concurrency": trial.load.concurrency,
        "algorithm": spec.algorithm if spec else None,
        "draft_model_path": spec.draft_model_path if spec else None,
        "num_steps": spec.num_steps if spec else None,
        "eagle_topk": spec.eagle_topk if spec else None,
        "num_draft_tokens": spec.num_draft_tokens if spec else None,
        "aux_layer_ids": ":".join(map(str, ids)) if ids else None,
        **{axis.replace("-", "_"): value for axis, value in arm.axes.items()},
    }
