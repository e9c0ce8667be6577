"""What may explain a step and is no part of the configuration: engine, driver, GPU, prompts, models' revisions."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from sweeper.core.result import Fingerprint
from sweeper.core.trial import Plan
from sweeper.effects.hub import local_checkpoint
from sweeper.errors import PreflightError

EDGE_BYTES = 2**20


def circumstances(plan: Plan, fingerprint: Fingerprint) -> Mapping[str, str]:
    """Name → value; what is unknown is left out."""
    engine = fingerprint.engine
    found = {
        "engine": engine.version or "",
        "engine files": (engine.files_sha256 or "")[:12],
        "driver": fingerprint.driver or "",
        "GPU": ", ".join(fingerprint.gpu),
        "device": fingerprint.device,
        "prompts": fingerprint.prompts_sha256[:12],
        **dict(_revisions(plan)),
    }
    return {name: value for name, value in found.items() if value}


def checkpoint_revision(folder: Path) -> str:
    """The hub's commit, or a hash over config.json and the size, begin and end of every weight file."""
    if folder.parent.name == "snapshots":
        return folder.name[:12]
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin"), *folder.glob("config.json")]):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            digest.update(file.read(EDGE_BYTES))
            file.seek(max(0, size - EDGE_BYTES))
            digest.update(file.read(EDGE_BYTES))
    return digest.hexdigest()[:12]


def _revisions(plan: Plan) -> Iterator[tuple[str, str]]:
    """`target`, `draft` where there is one of each; with their paths where there are several."""
    targets = {arm.server.model_path for arm in plan.arms}
    drafts = {arm.server.spec.draft_model_path for arm in plan.arms if arm.server.spec}
    for kind, paths in (("target", targets), ("draft", {path for path in drafts if path})):
        for path in sorted(paths):
            try:
                revision = checkpoint_revision(local_checkpoint(path))
            except (PreflightError, OSError):
                continue
            yield (kind if len(paths) == 1 else f"{kind} {path}"), revision
