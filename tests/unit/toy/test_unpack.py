"""The shipped pair: whole, small, and what its configs say it is."""

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from sweeper.toy import ToyPair, unpack
from sweeper.toy.chat import END, PAD, SPECIAL_TOKENS, TEMPLATE, Message, render
from sweeper.toy.corpus import CATEGORIES
from sweeper.toy.recipe import Recipe

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

SIZE_LIMIT_BYTES = 8_000_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> ToyPair:
    return unpack(tmp_path_factory.mktemp("toy") / "new" / "folder")


@pytest.fixture(scope="module")
def draft(pair: ToyPair) -> dict[str, Any]:
    return dict(safetensors.load_file(pair.draft / "model.safetensors"))


@pytest.fixture(scope="module")
def target(pair: ToyPair) -> dict[str, Any]:
    return dict(safetensors.load_file(pair.target / "model.safetensors"))


def config(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "config.json").read_text()))


def prompts(pair: ToyPair) -> list[dict[str, Any]]:
    return [json.loads(line) for line in pair.prompts.read_text().splitlines()]


def test_unpack_writes_every_file_a_server_needs(pair: ToyPair) -> None:
    assert {path.name for path in pair.target.iterdir()} == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert {path.name for path in pair.draft.iterdir()} == {"config.json", "model.safetensors"}
    assert (pair.prompts.parent / "report.json").is_file()


def test_unpack_repairs_a_damaged_pair_and_leaves_other_files_alone(tmp_path: Path) -> None:
    pair = unpack(tmp_path)
    (pair.draft / "config.json").write_text("{}")
    (tmp_path / "mine.txt").write_text("mine")
    unpack(tmp_path)
    assert config(pair.draft)["draft_vocab_size"] == Recipe().shape.draft_vocab_size
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_the_pair_is_at_most_eight_megabytes(pair: ToyPair) -> None:
    files = [path for path in pair.prompts.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= SIZE_LIMIT_BYTES


def test_the_pair_was_made_by_the_recipe_in_this_repository(pair: ToyPair) -> None:
    report = json.loads((pair.prompts.parent / "report.json").read_text())
    assert report["recipe"] == json.loads(json.dumps(asdict(Recipe())))


def test_the_configs_name_the_classes_and_the_captured_layers(pair: ToyPair) -> None:
    target, draft = config(pair.target), config(pair.draft)
    assert target["architectures"] == ["LlamaForCausalLM"]
    assert draft["architectures"] == ["LlamaForCausalLMEagle3"]
    assert draft["eagle_config"] == {
        "eagle_aux_hidden_state_layer_ids": list(Recipe().shape.aux_layer_ids),
        "use_aux_hidden_state": True,
    }
    assert max(Recipe().shape.aux_layer_ids) < target["num_hidden_layers"] - 1
    assert draft["max_position_embeddings"] >= target["max_position_embeddings"] == 4096


def test_heads_can_be_split_over_two_gpus(pair: ToyPair) -> None:
    for folder in (pair.target, pair.draft):
        heads = config(folder)
        assert (heads["head_dim"], heads["num_attention_heads"] % 2, heads["num_key_value_heads"]) == (64, 0, 2)


def test_d2t_and_t2d_name_the_same_tokens(pair: ToyPair, draft: dict[str, Any]) -> None:
    kept = draft["d2t"] + torch.arange(len(draft["d2t"]))
    assert draft["d2t"].dtype == torch.int64
    assert len(kept) == config(pair.draft)["draft_vocab_size"]
    assert len(draft["t2d"]) == config(pair.target)["vocab_size"]
    assert torch.equal(kept, draft["t2d"].nonzero().flatten())
    assert draft["d2t"].max() > 0, "a draft vocabulary without gaps would hide a wrong mapping"


def test_the_drafts_weights_have_the_shapes_of_an_eagle3_draft(pair: ToyPair, draft: dict[str, Any]) -> None:
    size = config(pair.draft)
    width = size["hidden_size"]
    assert draft["fc.weight"].shape == (width, 3 * config(pair.target)["hidden_size"])
    assert draft["midlayer.self_attn.q_proj.weight"].shape == (size["num_attention_heads"] * 64, 2 * width)
    assert draft["lm_head.weight"].shape == (size["draft_vocab_size"], width)
    assert "embed_tokens.weight" not in draft, "the engine lends the draft the target's embedding"


def test_all_weights_are_finite_and_in_bfloat16(target: dict[str, Any], draft: dict[str, Any]) -> None:
    weights = [tensor for name, tensor in (*target.items(), *draft.items()) if name not in ("d2t", "t2d")]
    assert {tensor.dtype for tensor in weights} == {torch.bfloat16}
    assert all(bool(tensor.isfinite().all()) for tensor in weights)


def test_the_end_of_a_turn_is_the_end_of_a_generation(pair: ToyPair) -> None:
    tokenizer = Tokenizer.from_file(str(pair.target / "tokenizer.json"))
    for name in ("config.json", "generation_config.json"):
        ends = json.loads((pair.target / name).read_text())
        assert ends["eos_token_id"] == tokenizer.token_to_id(END)
        assert ends["pad_token_id"] == tokenizer.token_to_id(PAD)
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(len(SPECIAL_TOKENS)))


def test_the_tokenizer_gives_every_text_back() -> None:
    tokenizer = Tokenizer.from_file(str(Path(__file__).parents[3] / "sweeper/data/toy/target/tokenizer.json"))
    for text in ("def f(x):\n    return x + 41\n", "Zoë – 東京\t|  a\r\n", "{'a': [1, 22, 333]}"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert len(tokenizer.encode("1234").ids) == 4


def test_the_shipped_template_renders_what_was_trained(pair: ToyPair) -> None:
    jinja2 = pytest.importorskip("jinja2")
    template = json.loads((pair.target / "tokenizer_config.json").read_text())["chat_template"]
    assert template == TEMPLATE
    messages = (Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Ho"), Message("user", "?"))
    plain = [{"role": m.role, "content": m.content} for m in messages]
    for wanted in (True, False):
        rendered = jinja2.Template(template, keep_trailing_newline=True).render(
            messages=plain, add_generation_prompt=wanted
        )
        assert rendered == render(messages, generation_prompt=wanted)


def test_prompts_come_in_every_category_and_mostly_held_out(pair: ToyPair) -> None:
    rows = prompts(pair)
    counts = Counter((row["category"], row["split"]) for row in rows)
    assert {category for category, _ in counts} == set(CATEGORIES)
    assert all(counts[category, "heldout"] >= 8 and counts[category, "seen"] >= 4 for category in CATEGORIES)
    assert len(rows) >= 64
    assert len({row["id"] for row in rows}) == len({row["text"] for row in rows}) == len(rows)


def test_the_text_of_a_chat_prompt_is_its_messages_rendered(pair: ToyPair) -> None:
    rows = [row for row in prompts(pair) if "messages" in row]
    assert len(rows) > 60
    for row in rows:
        messages = tuple(Message(m["role"], m["content"]) for m in row["messages"])
        assert row["text"] == render(messages, generation_prompt=True)


def test_prompts_leave_room_in_the_trained_context(pair: ToyPair) -> None:
    tokenizer = Tokenizer.from_file(str(pair.target / "tokenizer.json"))
    longest = max(len(tokenizer.encode(row["text"]).ids) for row in prompts(pair))
    assert longest + 256 <= Recipe().context_tokens
