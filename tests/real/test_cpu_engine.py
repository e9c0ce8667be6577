"""Speculation on the CPU engine is lossless: the real server with and without it, token for token."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from cpu_server import Answer, Prompt, Server, accept_length, serving
from random_pair import VOCABULARY, write_random_pair

from sweeper.toy import ToyPair, unpack

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang is not installed in this interpreter"),
]

PROMPTS = 30
LOADS = ("one at a time", "eight at a time", "from a warm cache")
BASELINE = "baseline"
Start = Sequence[str | Path]
Answers = dict[str, list[Answer]]


def speculative(algorithm: str, shape: str, draft: Path) -> Start:
    steps, topk, drafted = shape.split("-")
    return (
        "--speculative-algorithm", algorithm, "--speculative-draft-model-path", draft, "--speculative-num-steps", steps,
        "--speculative-eagle-topk", topk, "--speculative-num-draft-tokens", drafted,
    )  # fmt: skip


def all_loads(server: Server, prompts: Sequence[Prompt]) -> Answers:
    server.flush()
    alone = server.answers(prompts, concurrency=1)
    server.flush()
    together = server.answers(prompts, concurrency=8)
    return dict(zip(LOADS, (alone, together, server.answers(prompts, concurrency=8)), strict=True))


def answers_of(folder: Path, arms: Mapping[str, Start], prompts: Sequence[Prompt]) -> dict[str, Answers]:
    """Every arm's answers; two servers start at a time, and one works at a time."""
    answers: dict[str, Answers] = {}
    names = list(arms)
    for pair in (names[i : i + 2] for i in range(0, len(names), 2)):
        with serving(folder, *(arms[name] for name in pair)) as servers:
            answers |= {name: all_loads(server, prompts) for name, server in zip(pair, servers, strict=True)}
    return answers


def tokens(answers: Sequence[Answer]) -> list[tuple[int, ...]]:
    return [answer.tokens for answer in answers]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ToyPair:
    return unpack(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def toy_prompts(toy: ToyPair) -> list[Prompt]:
    prompts = [json.loads(line)["text"] for line in toy.prompts.read_text().splitlines()]
    return list(random.Random(1).sample(prompts, PROMPTS))


@pytest.fixture(scope="module")
def toy_answers(
    toy: ToyPair, toy_prompts: list[Prompt], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Answers]:
    target: Start = ("--model-path", toy.target, "--dtype", "float32")
    arms: dict[str, Start] = {
        BASELINE: target,
        "EAGLE3 3-1-4": (*target, *speculative("EAGLE3", "3-1-4", toy.draft)),
        "EAGLE3 5-4-16": (*target, *speculative("EAGLE3", "5-4-16", toy.draft)),
        "NGRAM": (*target, "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8"),
    }
    return answers_of(tmp_path_factory.mktemp("toy-servers"), arms, toy_prompts)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("arm", ["EAGLE3 3-1-4", "EAGLE3 5-4-16", "NGRAM"])
def test_in_float32_the_toy_answers_as_without_speculation(
    toy_answers: dict[str, Answers], arm: str, load: str
) -> None:
    assert tokens(toy_answers[arm][load]) == tokens(toy_answers[BASELINE]["one at a time"])
    assert accept_length(toy_answers[arm][load]) > 1.2


@pytest.mark.parametrize("load", LOADS)
def test_without_speculation_the_load_does_not_change_the_answers(toy_answers: dict[str, Answers], load: str) -> None:
    assert tokens(toy_answers[BASELINE][load]) == tokens(toy_answers[BASELINE]["one at a time"])


def test_a_wider_tree_accepts_more_than_a_chain(toy_answers: dict[str, Answers]) -> None:
    chain, tree = (accept_length(toy_answers[arm]["one at a time"]) for arm in ("EAGLE3 3-1-4", "EAGLE3 5-4-16"))
    assert tree > chain + 0.3


def test_in_bfloat16_the_same_drafts_are_accepted(
    toy: ToyPair,
    toy_prompts: list[Prompt],
    toy_answers: dict[str, Answers],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Ties make some answers differ in bfloat16: their share is reported, the accept length is held."""
    target: Start = ("--model-path", toy.target)
    arms = {BASELINE: target, "EAGLE3 3-1-4": (*target, *speculative("EAGLE3", "3-1-4", toy.draft))}
    with serving(tmp_path, *arms.values()) as (baseline, chain):
        expected, actual = (server.answers(toy_prompts, concurrency=1) for server in (baseline, chain))
    share = sum(a.tokens == b.tokens for a, b in zip(expected, actual, strict=True)) / PROMPTS
    record_property("equal_in_bfloat16", share)
    print(f"in bfloat16 {share:.0%} of the answers equal the baseline's")
    assert accept_length(actual) == pytest.approx(accept_length(toy_answers["EAGLE3 3-1-4"]["one at a time"]), abs=0.3)


def random_prompts() -> list[Prompt]:
    """Token ids of ragged lengths; every other prompt continues a shared beginning."""
    rng = random.Random(2)
    shared = [rng.randrange(VOCABULARY) for _ in range(70)]
    lengths = [rng.choice((1, 3, 20, 90, 260)) for _ in range(PROMPTS)]
    return [
        [*(shared if i % 2 else []), *(rng.randrange(VOCABULARY) for _ in range(length))]
        for i, length in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def random_answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answers]:
    """Another shape of Llama, without tokenizer. The speculative arms get long prompts in chunks."""
    pair = write_random_pair(tmp_path_factory.mktemp("random-pair"))
    target: Start = ("--model-path", pair.target, "--dtype", "float32", "--skip-tokenizer-init")
    chunked: Start = (*target, "--chunked-prefill-size", "64")
    arms: dict[str, Start] = {
        BASELINE: target,
        "EAGLE3 5-4-16": (*chunked, *speculative("EAGLE3", "5-4-16", pair.eagle3)),
        "EAGLE 3-2-6": (*chunked, *speculative("EAGLE", "3-2-6", pair.eagle)),
        "STANDALONE 3-1-4": (*chunked, *speculative("STANDALONE", "3-1-4", pair.target)),
    }
    return answers_of(tmp_path_factory.mktemp("random-servers"), arms, random_prompts())


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("arm", ["EAGLE3 5-4-16", "EAGLE 3-2-6", "STANDALONE 3-1-4"])
def test_a_random_llama_of_another_shape_answers_as_without_speculation(
    random_answers: dict[str, Answers], arm: str, load: str
) -> None:
    assert tokens(random_answers[arm][load]) == tokens(random_answers[BASELINE]["one at a time"])


def test_a_model_that_drafts_for_itself_is_accepted_throughout(random_answers: dict[str, Answers]) -> None:
    assert accept_length(random_answers["STANDALONE 3-1-4"]["one at a time"]) > 3.8
