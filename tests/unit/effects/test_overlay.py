import json
from pathlib import Path

import pytest

from sweeper.core.trial import ServerConfig, SpecConfig
from sweeper.effects.overlay import draft_overlay, overlay_for
from sweeper.errors import PreflightError


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    folder = tmp_path / "draft"
    folder.mkdir()
    config = {"hidden_size": 8, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 6], "kept": True}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def config_of(folder: Path) -> dict[str, object]:
    value = json.loads((folder / "config.json").read_text())
    assert isinstance(value, dict)
    return value


def test_the_overlay_has_its_own_ids_and_links_the_rest(draft: Path, tmp_path: Path) -> None:
    before = (draft / "config.json").read_bytes()
    made = draft_overlay(draft, [-1, 0, 1], tmp_path / "cache")
    block = {"eagle_aux_hidden_state_layer_ids": [-1, 0, 1], "kept": True}
    assert config_of(made) == {"hidden_size": 8, "eagle_config": block}
    assert (made / "model.safetensors").is_symlink()
    assert (made / "model.safetensors").read_bytes() == b"weights"
    assert (draft / "config.json").read_bytes() == before


def test_a_draft_without_an_eagle_config_gets_one(draft: Path, tmp_path: Path) -> None:
    (draft / "config.json").write_text('{"hidden_size": 8}')
    made = draft_overlay(draft, [1, 2, 3], tmp_path / "cache")
    assert config_of(made)["eagle_config"] == {
        "use_aux_hidden_state": True,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
    }


def test_the_same_content_gives_the_same_folder_and_another_another(draft: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    one = draft_overlay(draft, [1, 2, 3], cache)
    stamp = (one / "config.json").stat().st_ino
    assert draft_overlay(draft, [1, 2, 3], cache) == one
    assert (one / "config.json").stat().st_ino == stamp
    assert draft_overlay(draft, [3, 2, 1], cache) != one
    (draft / "model.safetensors").write_bytes(b"other weights")
    assert draft_overlay(draft, [1, 2, 3], cache) != one


def test_a_broken_overlay_is_made_again(draft: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made = draft_overlay(draft, [1, 2, 3], cache)
    (made / "config.json").write_text("{")
    assert draft_overlay(draft, [1, 2, 3], cache) == made
    assert config_of(made)["hidden_size"] == 8
    assert not [path for path in cache.iterdir() if path.name.startswith(".making")]


def test_a_draft_without_config_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"config\.json: cannot be read"):
        draft_overlay(tmp_path, [1], tmp_path / "cache")


def test_only_a_server_that_asks_for_ids_gets_an_overlay(
    draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))

    def server(ids: tuple[int, ...] | None) -> ServerConfig:
        spec = SpecConfig(algorithm="EAGLE3", draft_model_path=str(draft), aux_layer_ids=ids)
        return ServerConfig(model_path="m", device="cpu", args={}, env={}, spec=spec)

    assert overlay_for(server(None)) is None
    made = overlay_for(server((1, 2, 3)))
    assert made is not None and made.is_relative_to(tmp_path / "xdg" / "sweeper" / "drafts")
