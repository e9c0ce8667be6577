"""Conversations: each turn is asked with the model's own answers before it."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from sweeper.analysis.metrics import summarize
from sweeper.core.experiment import Workload
from sweeper.core.sample import ChatTemplate, LoadOutcome, Prompt, PromptSet
from sweeper.core.trial import LoadPoint
from sweeper.execution.loadgen import Load, LoadTarget
from sweeper.execution.shards import drive_blocking
from sweeper.testing.server import running

FAST = ("--prefill-ms", "2", "--step-ms", "1", "--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3")
TEMPLATE = ChatTemplate(
    source="{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>",
    special_tokens={},
    bos_added_by_tokenizer=False,
)


def conversation(number: int) -> Prompt:
    said = f"question {number}"
    return Prompt(
        prompt_id=f"c{number}",
        category="talk",
        text=f"<user>{said}<assistant>",
        messages=(("user", said),),
        follow_ups=(f"second {number}", f"third {number}"),
    )


def prompts(count: int) -> PromptSet:
    made = tuple(conversation(number) for number in range(count))
    return PromptSet(prompts=made, source="test", sha256="0", template="t", chat_template=TEMPLATE)


def driven(url: str, asked: PromptSet, *, shards: int = 1, **more: object) -> LoadOutcome:
    workload = Workload.model_validate({"max_tokens": 12, "stall_timeout_s": 5.0, "concurrency": [3], **more})
    target = LoadTarget(base_url=url, model="m")
    point = LoadPoint(concurrency=3)
    return drive_blocking(Load(target=target, prompts=asked, workload=workload, point=point), shards=shards)


def truths(path: Path) -> list[dict[str, object]]:
    return sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda row: row["arrival_s"])


@pytest.mark.parametrize("endpoint", ["generate", "completions", "chat"])
@pytest.mark.parametrize("client", ["lean", "httpx"])
def test_a_turn_carries_the_models_own_answers_to_the_turns_before_it(endpoint, client, tmp_path: Path):
    with running(*FAST, "--truth", str(tmp_path / "truth")) as url:
        workload = Workload.model_validate({"max_tokens": 12, "concurrency": [3], "endpoint": endpoint})
        load = Load(
            target=LoadTarget(base_url=url, model="m"),
            prompts=prompts(5),
            workload=workload,
            point=LoadPoint(concurrency=3),
            client=client,
        )
        outcome = drive_blocking(load)
    said = {(sample.prompt_id, sample.turn): sample.text for sample in outcome.samples}
    assert len(said) == 15 and all(said.values())
    asked = {str(row["prompt"]) for row in truths(tmp_path / "truth")}
    for number in range(5):
        first, second = said[f"c{number}", 1], said[f"c{number}", 2]
        if endpoint == "chat":
            third = f"question {number}\n{first}\nsecond {number}\n{second}\nthird {number}"
        else:
            third = (
                f"<user>question {number}<assistant>{first}<user>second {number}<assistant>{second}"
                f"<user>third {number}<assistant>"
            )
        assert third in asked


def test_a_conversation_stays_in_one_worker_whose_next_one_waits_for_its_end(tmp_path: Path):
    with running(*FAST) as url:
        outcome = driven(url, prompts(9))
    by_prompt: dict[str, list] = {}
    for sample in sorted(outcome.samples, key=lambda one: one.send_ns):
        by_prompt.setdefault(sample.prompt_id, []).append(sample)
    for samples in by_prompt.values():
        assert [one.turn for one in samples] == [1, 2, 3]
        assert all(later.send_ns >= before.end_ns for before, later in pairwise(samples))
    at_once = max(
        sum(talk[0].send_ns <= at < talk[-1].end_ns for talk in by_prompt.values())
        for at in (talk[0].send_ns for talk in by_prompt.values())
    )
    assert at_once == 3


def test_every_turn_is_a_request_with_figures_of_its_own(tmp_path: Path):
    with running(*FAST) as url:
        outcome = driven(url, prompts(6), shards=2)
    assert [sample.index for sample in outcome.samples] == list(range(18))
    metrics = summarize(outcome.samples, draft_tokens=4, concurrency=3)
    assert metrics.requests == 18 and [turn.requests for turn in metrics.by_turn] == [6, 6, 6]
    lengths = [turn.input_len.mean for turn in metrics.by_turn if turn.input_len is not None]
    assert lengths == sorted(lengths) and lengths[0] < lengths[2]
    assert metrics.output_tokens == sum(turn.output_tokens or 0 for turn in metrics.by_turn)
    assert all(turn.ttft_ms and turn.spec and turn.output_tok_per_s is None for turn in metrics.by_turn)


def test_what_follows_a_failed_turn_is_not_asked_and_the_rest_goes_on(tmp_path: Path):
    with running(*FAST, "--fault", "abort:0.3", "--truth", str(tmp_path / "truth")) as url:
        outcome = driven(url, prompts(20))
    rows = truths(tmp_path / "truth")
    assert len(rows) == len(outcome.samples) < 60
    failed = [sample for sample in outcome.samples if not sample.ok]
    assert len(failed) == sum(row["fault"] is not None for row in rows) > 0
    for sample in failed:
        turns = [one.turn for one in outcome.samples if one.prompt_id == sample.prompt_id]
        assert turns == list(range(1, sample.turn + 1))
    assert {sample.prompt_id for sample in outcome.samples} == {f"c{number}" for number in range(20)}


def test_prompts_with_one_turn_have_no_figures_by_turn():
    single = PromptSet(
        prompts=tuple(Prompt(prompt_id=f"p{i}", category="c", text=f"text {i}") for i in range(4)),
        source="test",
        sha256="0",
        template="none",
    )
    with running(*FAST) as url:
        outcome = driven(url, single)
    assert summarize(outcome.samples, draft_tokens=4, concurrency=3).by_turn == ()
