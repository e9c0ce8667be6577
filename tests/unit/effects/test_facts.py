import json
from pathlib import Path

import pytest

from sweeper.effects.engine_flags import SHIPPED, installed_version, table_of
from sweeper.effects.facts import beside, gather_facts, load_experiment
from sweeper.effects.gpu import Inventory
from sweeper.effects.hub import read_config
from sweeper.effects.requirements import require, too_few_gpus, unmet
from sweeper.errors import ConfigError, PreflightError
from sweeper.planning.config import parse_document, parse_experiment
from sweeper.testing.gpus import FakeGpus, fake_node


class NoGpus:
    def read(self) -> Inventory:
        return Inventory(problem="no NVML")


def write(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text)
    return path


def checkpoint(folder: Path, **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"1234")
    return folder


def test_configs_and_sizes_of_what_is_here_are_read(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target", architectures=["LlamaForCausalLM"])
    loaded = load_experiment(write(tmp_path, "name: a\nengine: {device: cpu}\nserver: {model_path: target}\n"))
    assert loaded.experiment.server.model_path == str(target)
    assert loaded.facts.config(str(target)) == {"architectures": ["LlamaForCausalLM"]}
    assert loaded.facts.weight_bytes[str(target)] == 4
    assert loaded.facts.missing == ()


def test_what_is_not_here_is_missing_with_a_remedy_and_its_stand_in_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"num_hidden_layers": 61}')
    text = "name: a\nengine: {device: cpu}\nserver: {model_path: org/big, target_config: t.json}\n"
    loaded = load_experiment(write(tmp_path, text))
    assert loaded.facts.config("org/big") == {"num_hidden_layers": 61}
    assert "download it first (`hf download org/big`)" in loaded.facts.missing[0]
    with pytest.raises(PreflightError, match="hf download org/big"):
        require(loaded.document, loaded.facts)


def test_a_missing_stand_in_is_an_error_with_its_line(tmp_path: Path) -> None:
    text = "name: a\nserver:\n  model_path: org/big\n  target_config: nowhere.json\n"
    with pytest.raises(ConfigError, match=r"x\.yaml:4: server\.target_config: nowhere\.json: cannot be read"):
        load_experiment(write(tmp_path, text))


def test_a_base_path_that_an_axis_replaces_is_not_asked_for(tmp_path: Path) -> None:
    text = (
        "name: a\nengine: {device: cpu}\nserver: {model_path: 'toy:target'}\n"
        "speculative: {draft_model_path: /nowhere}\nsweep: {speculative.draft_model_path: [/a, /b]}\n"
    )
    loaded = load_experiment(write(tmp_path, text))
    assert not any("/nowhere" in sentence for sentence in loaded.facts.missing)
    assert sum("no such folder" in sentence for sentence in loaded.facts.missing) == 2


def test_no_gpu_for_cuda_no_engine_and_no_prompts_are_unmet(tmp_path: Path) -> None:
    text = (
        f"name: a\nengine: {{python: {tmp_path}/none}}\nserver: {{model_path: {tmp_path}/nope}}\n"
        f"workload: {{prompts: {tmp_path}/p.jsonl}}\n"
    )
    document = parse_document(text, Path("x.yaml"))
    facts = gather_facts(document.experiment, gpus=NoGpus())
    said = "\n".join(unmet(document, facts))
    assert facts.engine_version == SHIPPED
    assert "no such folder; correct the path" in said
    assert "x.yaml:2: engine.python: SGLang is not installed in" in said and "set engine.python" in said
    assert "no such file; correct the path, or use builtin:NAME" in said
    assert "no NVIDIA GPU is visible here" in said
    on_a_cluster = "\n".join(unmet(document, facts, cluster=True))
    assert "no NVIDIA GPU" not in on_a_cluster and "SGLang is not installed" in on_a_cluster


def test_a_server_larger_than_the_node_is_said(tmp_path: Path) -> None:
    experiment = parse_experiment("name: a\nserver: {model_path: m}\n", Path("x.yaml"))
    facts = gather_facts(experiment, gpus=NoGpus())
    assert too_few_gpus(8, facts) is None


@pytest.mark.parametrize(("given", "count"), [(None, 8), ("", 8), ("4,5,6", 3), ("GPU-aaaa, GPU-bbbb", 2)])
def test_gpus_that_this_job_was_not_given_do_not_count(
    monkeypatch: pytest.MonkeyPatch, given: str | None, count: int
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    experiment = parse_experiment("name: a\nserver: {model_path: m}\n", Path("x.yaml"))
    facts = gather_facts(experiment, gpus=FakeGpus([fake_node(8)]))
    assert facts.gpu_count == count
    assert bool(too_few_gpus(4, facts)) == (count < 4)


def test_an_unreadable_version_is_one_clear_line() -> None:
    experiment = parse_experiment("name: a\nserver: {model_path: m}\nengine: {version: newest}\n", Path("x.yaml"))
    with pytest.raises(ConfigError, match="'newest' is not an SGLang release"):
        gather_facts(experiment, gpus=NoGpus())


def interpreter(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_another_interpreter_is_asked_for_its_version(tmp_path: Path) -> None:
    assert installed_version(interpreter(tmp_path, "echo 0.5.17")) == "0.5.17"
    assert installed_version(interpreter(tmp_path, "exit 1")) is None
    assert installed_version(str(tmp_path / "nothing")) is None


def test_flags_of_another_release_come_from_its_help_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = "\n".join(f"  --flag-{n} FLAG_{n}" for n in range(60))
    python = interpreter(tmp_path, f"echo run >> {tmp_path}/calls\ncat <<'END'\noptions:\n{options}\nEND")
    first, second = table_of("0.5.17", python), table_of("0.5.17", python)
    assert first is not None and second is not None
    assert first.find("flag_7") == second.find("flag_7") is not None
    assert (tmp_path / "calls").read_text().splitlines() == ["run"]


def test_an_interpreter_that_does_not_answer_has_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert table_of("0.5.17", interpreter(tmp_path, "exit 2")) is None


def test_names_that_no_file_system_takes_are_no_paths_and_no_crash(tmp_path: Path) -> None:
    place = beside(tmp_path)
    assert place("x" * 5000) == "x" * 5000
    assert place("~nobody-of-this-name/model") == "~nobody-of-this-name/model"


def test_a_config_nested_too_deeply_is_named(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target")
    (target / "config.json").write_text("[" * 100_000)
    with pytest.raises(PreflightError, match="not JSON"):
        read_config(target / "config.json")
