import json
import re
from pathlib import Path

import pytest

from sweeper.core.experiment import Workload
from sweeper.effects.prompt_files import read_prompts
from sweeper.effects.prompts import load_prompts, mean_turns
from sweeper.effects.suites import CATEGORIES, SUITES, TIERS, build_suite
from sweeper.errors import ConfigError


def workload(prompts: str, count: int = 8, **more: object) -> Workload:
    return Workload.model_validate({"prompts": prompts, "num_prompts": count, "concurrency": [1], **more})


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    config = {"chat_template": "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}[assistant]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize("name", [name for name in SUITES if not name.startswith("long")])
def test_a_suite_has_256_distinct_prompts_and_the_same_ones_every_time(name):
    prompts = build_suite(name, 256, seed=3)
    assert len({prompt.text for prompt in prompts}) == 256
    assert len({prompt.prompt_id for prompt in prompts}) == 256
    assert prompts == build_suite(name, 256, seed=3)
    assert prompts[:50] == build_suite(name, 50, seed=3)
    assert prompts[0] != build_suite(name, 1, seed=4)[0]


def test_every_category_is_in_exactly_one_tier_or_long():
    tiered = [name for names in TIERS.values() for name in names]
    assert sorted(tiered) == sorted(name for name in CATEGORIES if not name.startswith("long"))


def test_a_mixed_run_takes_the_categories_in_turn():
    categories = [prompt.category for prompt in build_suite("mixed", 18, seed=1)]
    assert len(set(categories[:9])) == 9
    assert categories[:9] == categories[9:]


@pytest.mark.parametrize(("name", "low", "high"), [("long-1k", 750, 900), ("long-4k", 3000, 3200)])
def test_long_prompts_have_their_length_and_hide_their_answer(name, low, high):
    for prompt in build_suite(name, 3, seed=1):
        assert low <= len(prompt.text.split()) <= high
        assert prompt.answer is not None and prompt.text.count(prompt.answer) == 1


def test_word_problems_have_the_answer_that_their_numbers_give():
    for prompt in build_suite("math", 200, seed=5):
        numbers = [int(word) for word in re.findall(r"\d+", prompt.text)]
        assert prompt.answer is not None
        answer = int(prompt.answer.removeprefix("Answer: "))
        if " stops " in prompt.text:
            start, stops, each, driving = numbers
            assert answer == start + stops * each + driving
        elif "brings" in prompt.text:
            has, bags, each, away = numbers
            assert answer == has + bags * each - away
        elif "boxes" in prompt.text:
            total, boxes, opened = numbers
            assert answer == total - opened * total // boxes >= 0
        else:
            daily, days, times = numbers
            assert answer == daily * days * (1 + times)


def test_the_templates_hash_and_the_prompts_hash_say_what_was_sent(tokenizer):
    plain = load_prompts(workload("builtin:code"), tokenizer_dir=None)
    told = load_prompts(workload("builtin:code"), tokenizer_dir=tokenizer)
    none = load_prompts(workload("builtin:code", chat_template="none"), tokenizer_dir=tokenizer)
    assert told.prompts[0].text.startswith("[user] ") and told.template.startswith("tokenizer:")
    assert plain.template == none.template == "none"
    assert plain.sha256 == none.sha256 != told.sha256
    assert any("no chat template" in warning for warning in plain.warnings)


def test_on_the_chat_endpoint_the_server_applies_the_template(tokenizer):
    prompts = load_prompts(workload("builtin:code", endpoint="chat"), tokenizer_dir=tokenizer)
    assert prompts.template == "server"
    assert prompts.prompts[0].messages == (("user", prompts.prompts[0].text),)


def test_random_prompts_have_their_length_and_are_not_representative():
    prompts = load_prompts(workload("random:5:9", 50), tokenizer_dir=None)
    assert {len(prompt.text.split()) for prompt in prompts.prompts} == {5, 6, 7, 8, 9}
    assert not prompts.representative


@pytest.mark.parametrize("source", ["builtin:poems", "random:9:x", "random:0:4", "nowhere.jsonl"])
def test_an_unknown_source_is_one_clear_line(source):
    with pytest.raises(ConfigError, match=re.escape(source.split(":")[1] if source.startswith("builtin") else source)):
        load_prompts(workload(source), tokenizer_dir=None)


FILES = {
    "question.jsonl": '{"question_id": 7, "category": "writing", "turns": ["First question", "Second question"]}',
    "share.json": '[{"id": "s", "conversations": [{"from": "human", "value": "First question"}, '
    '{"from": "gpt", "value": "x"}]}]',
    "custom.jsonl": '{"conversations": [{"role": "user", "content": "First question"}, '
    '{"role": "assistant", "content": "x"}]}',
    "batch.jsonl": '{"custom_id": "b", "body": {"max_tokens": 9, "messages": '
    '[{"role": "user", "content": "First question"}]}}',
    "prompt.jsonl": '{"prompt": "First question"}',
    "lines.txt": "First question\n\n",
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_projects_are_read_up_to_what_the_model_shall_say(name, tmp_path):
    path = tmp_path / name
    path.write_text(FILES[name])
    (prompt,) = read_prompts(path)
    assert prompt.messages == (("user", "First question"),)


def test_ids_categories_and_limits_of_a_file_are_kept(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(FILES["question.jsonl"] + "\n" + FILES["batch.jsonl"])
    first, second = read_prompts(path)
    assert (first.prompt_id, first.category) == ("7", "writing")
    assert (second.prompt_id, second.max_tokens) == ("b", 9)


def test_raw_texts_stay_raw_and_a_chat_model_is_warned_about_them(tmp_path, tokenizer):
    path = tmp_path / "raw.jsonl"
    path.write_text('{"text": "def f("}\n')
    prompts = load_prompts(workload(str(path)), tokenizer_dir=tokenizer)
    assert prompts.prompts[0].text == "def f("
    assert any("raw text although the model has a chat template" in warning for warning in prompts.warnings)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{broken", ":1: not JSON"),
        ('{"a": 1}', ":1: no prompt"),
        ("", "no prompts"),
        ('{"text": "\\ud800"}', "half a character"),
        ('{"text": " \\n"}', "prompt 'x-1' is empty"),
        ('{"messages": [{"role": "user", "content": null}]}', "prompt 'x-1' is empty"),
        ('{"id": "q", "turns": [null]}', "prompt 'q' is empty"),
    ],
)
def test_a_broken_file_is_named_with_its_line(text, told, tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_prompts(path)


def test_only_line_ends_end_a_line(tmp_path):
    """JSON may hold U+2028 as it is, and a plain line a form feed; a byte order mark is no part of the text."""
    path = tmp_path / "x.jsonl"
    path.write_bytes('\ufeff{"text": "a\u2028b"}\r\n{"text": "c\u0085d"}'.encode())
    assert [prompt.text for prompt in read_prompts(path)] == ["a\u2028b", "c\u0085d"]
    path = tmp_path / "x.txt"
    path.write_text("\ufeffone\x0ctwo\nthree\n")
    assert [prompt.text for prompt in read_prompts(path)] == ["one\x0ctwo", "three"]


def test_prompts_that_share_an_id_are_told_apart(tmp_path):
    """Answers are compared by it: two prompts of one name would be held against each other."""
    path = tmp_path / "x.jsonl"
    path.write_text(
        "\n".join(json.dumps({"id": name, "text": f"{name}{i}"}) for i, name in enumerate(["a", "a#2", "a", "a"]))
    )
    assert [(prompt.prompt_id, prompt.text) for prompt in read_prompts(path)] == [
        ("a", "a0"),
        ("a#2", "a#21"),
        ("a#3", "a2"),
        ("a#4", "a3"),
    ]


def test_a_short_run_covers_all_categories_of_a_file(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [{"prompt": f"{category} {i}", "category": category} for category in "abc" for i in range(30)]
    path.write_text("\n".join(map(json.dumps, rows)))
    prompts = load_prompts(workload(str(path), 6), tokenizer_dir=None)
    assert [prompt.category for prompt in prompts.prompts] == ["a", "b", "c", "a", "b", "c"]


def test_too_few_prompts_are_a_warning(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("one\ntwo\n")
    warnings = load_prompts(workload(str(path), 10, concurrency=[4]), tokenizer_dir=None).warnings
    assert any(
        warning.endswith("has 2 prompts, not the 10 asked for: concurrency 4 is never reached") for warning in warnings
    )
    enough = load_prompts(workload(str(path), 10, concurrency=[2]), tokenizer_dir=None).warnings
    assert any(warning.endswith("has 2 prompts, not the 10 asked for") for warning in enough)
    assert any("fewer than 8 × concurrency 4" in warning for warning in warnings)


def test_a_plan_knows_how_many_turns_its_conversations_have(tmp_path: Path) -> None:
    rows = [{"question_id": n, "turns": ["first", *["then"] * more]} for n, more in enumerate((0, 1, 4, 0))]
    file = tmp_path / "question.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert mean_turns(Workload(prompts=str(file), num_prompts=4)) == (4 + 5) / 4
    assert mean_turns(Workload(prompts="builtin:multiturn", num_prompts=1_000_000)) == 3
    assert mean_turns(Workload(prompts="random:8:16")) == mean_turns(Workload(prompts=str(tmp_path / "none"))) == 1
