import json
from pathlib import Path

import pytest
from test_controller import tools

from sweeper.core.events import Event
from sweeper.core.experiment import Experiment
from sweeper.errors import ConfigError
from sweeper.execution.accounts import Accounts
from sweeper.execution.pool import LocalPool
from sweeper.execution.session import Opened, Options, Prepared, open_run, prepare, run_session
from sweeper.present.document import document
from sweeper.store.reader import read_run
from sweeper.store.writer import RunWriter
from sweeper.testing.launcher import FakeLauncher
from sweeper.testing.plans import small_fingerprint, small_plan, small_prompts


class Silent:
    def show(self, event: Event) -> None: ...

    def close(self) -> None: ...


async def test_what_the_doctor_only_warns_of_stands_in_the_journal_as_a_warning(tmp_path: Path) -> None:
    plan = small_plan(starts=1, repeats=1)
    prepared = Prepared(
        experiment=Experiment.model_validate(
            {
                "name": "small",
                "server": {"model_path": "toy"},
                "workload": {"max_tokens": 4, "num_prompts": 4},
            }
        ),
        plan=plan,
        prompts=small_prompts(),
        fingerprint=small_fingerprint(),
        skips=(),
        warnings=("doctor: 3-1-4: the head is upside down",),
    )
    writer = RunWriter.create(tmp_path, plan, experiment={}, environment={})
    opened = Opened(writer=writer, accounts=Accounts(plan), notes=("moved aside",), resumed=0)
    ended = await run_session(prepared, opened, LocalPool(tools(FakeLauncher())), Silent())
    assert ended.completed == 4
    journal = [json.loads(line) for line in (writer.path / "events.jsonl").read_text().splitlines()]
    told = [(line["level"], line["message"]) for line in journal if line["kind"] == "notice"]
    assert told == [("warning", "moved aside"), ("warning", "doctor: 3-1-4: the head is upside down")]


def prepared_with(folder: Path, prompts: str, **workload: object) -> Prepared:
    target = folder / "target"
    target.mkdir()
    (target / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (target / "model.safetensors").write_bytes(b"12")
    (target / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": "{% for m in messages %}<{{ m.content }}>{% endfor %}"})
    )
    (folder / "p.jsonl").write_text(prompts)
    load = {"prompts": "p.jsonl", "num_prompts": 2, "concurrency": [1], **workload}
    (folder / "x.yaml").write_text(
        json.dumps({"name": "x", "engine": {"device": "cpu"}, "server": {"model_path": "target"}, "workload": load})
    )
    return prepare(folder / "x.yaml")


def test_a_run_keeps_the_template_and_what_is_to_be_known_of_its_prompts(tmp_path: Path) -> None:
    asked = '{"text": "raw"}\n{"messages": [{"role": "user", "content": "said"}]}\n'
    prepared = prepared_with(tmp_path, asked, chat_template_kwargs={"enable_thinking": False})
    raw = "1 of 2 prompts are raw text although the model has a chat template"
    assert raw in prepared.warnings, "told while it runs"
    opened = open_run(prepared, Options(results_dir=tmp_path / "results"))
    opened.writer.close()
    run = read_run(opened.writer.path)
    kept = run.environment["prompts"]
    assert kept["chat_template"].startswith("tokenizer:") and len(kept["chat_template"]) == len("tokenizer:") + 12
    assert (kept["template_arguments"], kept["warnings"]) == ({"enable_thinking": False}, [raw])
    assert f"Prompts: {raw}." in document(run).notes
    (shown,) = (words for name, words in document(run).environment if name == "prompts")
    assert "template arguments enable_thinking no" in shown.replace("_arguments", " arguments") and raw not in shown


def test_what_the_plan_says_of_few_prompts_is_not_said_twice(tmp_path: Path) -> None:
    asked = "".join(f'{{"text": "prompt {n}"}}\n' for n in range(9))
    prepared = prepared_with(tmp_path, asked, num_prompts=9, concurrency=[4])
    assert any("ramp and tail weigh" in words for words in prepared.plan.warnings)
    assert not any("steady window" in words for words in prepared.warnings)


def test_prompts_that_cannot_be_read_are_told_with_the_line_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:1: .*p\.jsonl:2: not JSON"):
        prepared_with(tmp_path, '{"text": "fine"}\n{"text": \n')
