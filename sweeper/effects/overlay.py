"""A draft with other layer ids: a folder with a config.json of its own and links to everything else.

SGLang has no flag for the captured layers; they stand in the draft's config.json. The original is never touched.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweeper.core.trial import ServerConfig
from sweeper.effects.hub import cache_dir, local_checkpoint, read_config, text_sha256
from sweeper.errors import DiskError


def overlay_for(server: ServerConfig) -> Path | None:
    """The overlay that this server's draft needs, made on this node; None: it asks for no layer ids of its own."""
    spec = server.spec
    if spec is None or spec.aux_layer_ids is None or spec.draft_model_path is None:
        return None
    return draft_overlay(local_checkpoint(spec.draft_model_path), spec.aux_layer_ids, cache_dir() / "drafts")


def draft_overlay(draft_path: Path, aux_layer_ids: Sequence[int], cache_dir: Path) -> Path:
    """Folder under `cache_dir` that is the draft with these layer ids; the same content gives the same folder.

    Raises PreflightError when the draft has no config.json or the folder cannot be written.
    """
    source = draft_path.resolve()
    config = _with_ids(dict(read_config(source / "config.json")), aux_layer_ids)
    text = json.dumps(config, indent=1, sort_keys=True) + "\n"
    files = sorted(path for path in source.iterdir() if path.name != "config.json")
    stamps = "".join(f"{path.name}\0{path.resolve()}\0{path.stat().st_size}\n" for path in files)
    target = cache_dir / f"{source.name}-{text_sha256(text + stamps)[:16]}"
    if _whole(target, text, files):
        return target
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".making-", dir=cache_dir))
        try:
            for path in files:
                (made / path.name).symlink_to(path.resolve())
            (made / "config.json").write_text(text)
            _put(made, target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise DiskError(f"{cache_dir}: cannot write the draft overlay ({error.strerror}); free or allow it") from None
    return target


def _with_ids(config: dict[str, Any], ids: Sequence[int]) -> dict[str, Any]:
    block = config.get("eagle_config")
    block = dict(block) if isinstance(block, dict) else {"use_aux_hidden_state": True}
    return {**config, "eagle_config": {**block, "eagle_aux_hidden_state_layer_ids": list(ids)}}


def _whole(target: Path, text: str, files: Sequence[Path]) -> bool:
    try:
        return (target / "config.json").read_text() == text and all((target / path.name).exists() for path in files)
    except OSError:
        return False


def _put(made: Path, target: Path) -> None:
    """Rename into place; another process may have made the same folder meanwhile, and a broken one is set aside."""
    try:
        made.rename(target)
    except OSError:
        if _whole(target, (made / "config.json").read_text(), [p for p in made.iterdir() if p.name != "config.json"]):
            return
        aside = Path(tempfile.mkdtemp(prefix=".broken-", dir=target.parent))
        target.rename(aside / target.name)
        made.rename(target)
