import json
from pathlib import Path

import pytest

from sweeper.effects.templates import load_template, render
from sweeper.errors import PreflightError

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}{% endif %}"
)


def tokenizer(path: Path, template: object, **config: object) -> Path:
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, **config}))
    return path


def rendered(path: Path, **options: object) -> str:
    template = load_template(path)
    assert template is not None
    return render(template, [("user", "Hi")], options)


def test_messages_are_rendered_up_to_the_assistants_turn(tmp_path):
    text = rendered(tokenizer(tmp_path, CHATML))
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_options_of_the_template_are_passed_on(tmp_path):
    assert rendered(tokenizer(tmp_path, CHATML), enable_thinking=False).endswith("assistant\n<think></think>")


def test_the_default_of_several_named_templates_is_meant(tmp_path):
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    assert rendered(tokenizer(tmp_path, named)) == "D"


def test_a_template_file_beside_the_configuration_wins(tmp_path):
    tokenizer(tmp_path, "old")
    (tmp_path / "chat_template.jinja").write_text("new")
    assert rendered(tmp_path) == "new"


def test_a_first_token_that_the_tokenizer_adds_itself_is_not_there_twice(tmp_path):
    template = "{{ bos_token }}{{ messages[0].content }}"
    assert rendered(tokenizer(tmp_path, template, bos_token="<s>", add_bos_token=True)) == "Hi"
    assert rendered(tokenizer(tmp_path, template, bos_token={"content": "<s>"}, add_bos_token=False)) == "<s>Hi"


def test_the_post_processor_tells_whether_the_first_token_is_added(tmp_path):
    tokenizer(tmp_path, "{{ bos_token }}{{ messages[0].content }}", bos_token="<s>")
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    step = {"type": "TemplateProcessing", "single": single, "special_tokens": {"<s>": {"id": "<s>"}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"post_processor": {"type": "Sequence", "processors": [step]}}))
    assert rendered(tmp_path) == "Hi"


def test_a_date_in_a_template_is_always_the_same_date(tmp_path):
    assert rendered(tokenizer(tmp_path, "{{ strftime_now('%Y-%m-%d') }}")) == "2025-01-01"


def test_a_template_that_refuses_says_what_to_do(tmp_path):
    template = load_template(tokenizer(tmp_path, "{{ raise_exception('roles must alternate') }}"))
    assert template is not None
    with pytest.raises(PreflightError, match="roles must alternate; set chat_template: none"):
        render(template, [("user", "Hi")], {})


@pytest.mark.parametrize("source", ["{{ 1 // 0 }}", "{{ messages[0].content | int // 0 }}", "{{ messages | sum }}"])
def test_a_template_that_fails_in_its_own_way_is_one_line(source, tmp_path):
    template = load_template(tokenizer(tmp_path, source))
    assert template is not None
    with pytest.raises(PreflightError, match=r"chat template failed: .*; set chat_template: none"):
        render(template, [("user", "Hi")], {})


def test_a_template_file_that_is_no_text_is_named(tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(PreflightError, match=r"chat_template\.jinja: cannot be read"):
        load_template(tmp_path)


def test_a_template_cannot_reach_out_of_its_sandbox(tmp_path):
    template = load_template(tokenizer(tmp_path, "{{ ''.__class__.__mro__[1].__subclasses__() }}"))
    assert template is not None
    with pytest.raises(PreflightError):
        render(template, [("user", "Hi")], {})


def test_a_tokenizer_without_a_template_has_none(tmp_path):
    assert load_template(tokenizer(tmp_path, None)) is None
    assert load_template(tmp_path / "nowhere") is None
