"""Equal, tie, different."""

from dataclasses import replace

import pytest

from sweeper.analysis.lossless import Likenesses, gap_bound, judge, likenesses, reference_prompts
from sweeper.core.lossless import Judged, Reference, ReferenceAnswer
from sweeper.core.result import Measurement
from sweeper.core.sample import RequestError, Sample
from sweeper.present.answers import parting_words
from sweeper.testing.plans import small_fingerprint, small_measurement, small_plan, small_prompts
from sweeper.testing.runs import model_run

IDS = (5, 6, 7, 8)
ANSWER = ReferenceAnswer(
    prompt_id="p",
    text="five six seven eight",
    output_ids=IDS,
    pieces=None,
    best=(-0.1, -0.1, -0.1, -0.1),
    second=(-2.1, -0.2, -0.4, -2.1),
    cut=False,
)
WORDS = replace(ANSWER, output_ids=None, pieces=("five", " six", " seven", " eight"))
SAMPLE = Sample(
    index=0,
    prompt_id="p",
    category="x",
    due_ns=0,
    send_ns=0,
    chunk_ns=(1,),
    chunk_tokens=(4,),
    end_ns=1,
    input_tokens=1,
    cached_tokens=0,
    output_tokens=4,
    finish_reason="stop",
    text="",
    output_ids=IDS,
    spec=None,
)


def reference(*answers: ReferenceAnswer, dtype: str | None = "bfloat16") -> Reference:
    return Reference(
        arm_id="baseline",
        group_id="group-baseline",
        start=0,
        recorded_at="2026-01-01T00:00:00+00:00",
        fingerprint=small_fingerprint(),
        dtype=dtype,
        concurrency=1,
        seconds=1.0,
        answers=answers,
    )


def measured(trial_id: str = "t", repeat: int = 0) -> Measurement:
    """On a server whose steps give four tokens at most."""
    plan = small_plan()
    one = small_measurement(plan.trials[0], repeat=repeat)
    steps = replace(one.effective, num_steps=3, eagle_topk=1, num_draft_tokens=4)
    return replace(one, trial_id=trial_id, effective=steps)


def parting(sample: Sample, answer: ReferenceAnswer = ANSWER, dtype: str | None = "bfloat16") -> Judged | None:
    """The one judgement; None: equal."""
    found = judge(reference(answer, dtype=dtype), [sample], measurement=measured())
    assert found.equal + len(found.unequal) == 1
    return found.unequal[0] if found.unequal else None


def ids(*tokens: int) -> Sample:
    return replace(SAMPLE, output_ids=tokens)


def text(words: str) -> Sample:
    return replace(SAMPLE, output_ids=None, text=words)


def test_the_same_tokens_are_equal() -> None:
    assert parting(ids(*IDS)) is None


@pytest.mark.parametrize(
    ("tokens", "likeness", "position", "gap"),
    [
        ((5, 9, 7, 8), "tie", 1, 0.1),
        ((5, 6, 9, 8), "different", 2, 0.3),
        ((5, 6, 7), "different", 3, 2.0),
        ((5,), "tie", 1, 0.1),
        ((5, 6, 7, 8, 9), "different", 4, None),
    ],
)
def test_the_first_difference_is_judged_by_the_baselines_gap_there(
    tokens: tuple[int, ...], likeness: str, position: int, gap: float | None
) -> None:
    judged = parting(ids(*tokens))
    assert judged is not None
    assert (judged.likeness, judged.position) == (likeness, position)
    assert judged.gap == (None if gap is None else pytest.approx(gap))


@pytest.mark.parametrize(
    ("dtype", "likeness"), [("float32", "different"), ("float16", "different"), ("bfloat16", "tie")]
)
def test_a_finer_dtype_forgives_less(dtype: str, likeness: str) -> None:
    judged = parting(ids(5, 9), dtype=dtype)
    assert judged is not None and judged.likeness == likeness


@pytest.mark.parametrize(
    ("more", "finish", "likeness"),
    [
        (1, "length", "overrun"),
        (3, "length", "overrun"),
        (4, "length", "different"),  # more than the rest of one step
        (1, "stop", "different"),  # it did not see the end at all
    ],
)
@pytest.mark.parametrize("by", ["tokens", "text"])
def test_an_answer_that_only_ends_its_last_step_after_the_baselines_end_is_the_baselines(
    more: int, finish: str, likeness: str, by: str
) -> None:
    rest = range(20, 20 + more)
    sample = replace(SAMPLE, finish_reason=finish, output_tokens=len(IDS) + more)
    if by == "tokens":
        judged = parting(replace(sample, output_ids=(*IDS, *rest)))
    else:
        ended = replace(WORDS, text="five six seven", pieces=("five", " six", " seven", "<|end|>"))
        words = "five six seven" + "".join(f" {token}" for token in rest)
        judged = parting(replace(sample, output_ids=None, text=words), ended)
    assert judged is not None and judged.likeness == likeness


def test_an_overrun_end_is_equal_and_told() -> None:
    over = replace(ids(*IDS, 9), finish_reason="length", output_tokens=5)
    found = pooled(ids(*IDS), over)
    assert (str(found), found.overrun, found.lossless) == ("2 equal", 1, True)
    assert parting_words(found).startswith("1 went on after the end")


def test_an_unknown_dtype_is_taken_as_bfloat16() -> None:
    assert gap_bound(None) == gap_bound("bfloat16") == gap_bound("float8_e4m3fn")


def test_an_answer_that_the_pass_cut_is_compared_as_far_as_it_goes() -> None:
    cut = replace(ANSWER, cut=True)
    assert parting(ids(*IDS, 9, 9), cut) is None
    shorter = parting(ids(5, 6, 7), cut)
    assert shorter is not None and shorter.likeness == "different"


def test_without_a_gap_there_a_difference_is_not_judged() -> None:
    judged = parting(ids(5, 9, 7, 8), replace(ANSWER, second=(None, None, None, None)))
    assert judged is not None and (judged.likeness, judged.gap) == ("unchecked", None)


def test_failed_requests_other_prompts_and_later_turns_are_not_compared() -> None:
    failed = replace(SAMPLE, error=RequestError(kind="cut", message="cut"))
    other = replace(SAMPLE, prompt_id="q")
    later = replace(SAMPLE, turn=2, output_ids=(1, 2))
    found = judge(reference(ANSWER), [failed, other, later, SAMPLE], measurement=measured())
    assert (found.equal, found.unequal, found.by) == (1, (), "tokens")


@pytest.mark.parametrize(
    ("words", "likeness", "position"),
    [
        ("five nine seven eight", "tie", 1),
        ("five six eleven", "different", 2),
        ("five six seven eight nine", "different", 4),
    ],
)
def test_without_token_ids_the_text_says_which_token_it_was(words: str, likeness: str, position: int) -> None:
    judged = parting(text(words), WORDS)
    assert judged is not None and (judged.likeness, judged.position) == (likeness, position)


def test_a_text_that_goes_on_where_the_baseline_ended_by_a_token_is_judged_by_that_token() -> None:
    ended = replace(WORDS, text="five six seven", pieces=("five", " six", " seven", "<|end|>"))
    judged = parting(text("five six seven eight"), ended)
    assert judged is not None and (judged.likeness, judged.position, judged.gap) == ("different", 3, pytest.approx(2.0))


def test_the_same_text_is_equal_and_said_to_be_compared_as_text() -> None:
    found = judge(reference(WORDS), [text(WORDS.text)], measurement=measured())
    assert (found.equal, found.by) == (1, "text")


def test_a_text_that_its_tokens_do_not_make_up_is_not_judged() -> None:
    """A parser of the server took words out of it."""
    judged = parting(text("five nine"), replace(WORDS, pieces=("<think>", "five", " six", " seven", " eight")))
    assert judged is not None and (judged.likeness, judged.position) == ("unchecked", None)


def pooled(*samples: Sample) -> Likenesses:
    run = model_run(("3-1-4",), concurrency=(1,), starts=1, repeats=1)
    trial_id = run.plan.trials[1].trial_id
    found = tuple(
        judge(reference(ANSWER), [sample], measurement=measured(trial_id, repeat))
        for repeat, sample in enumerate(samples)
    )
    return likenesses(replace(run, losslessness=found))[trial_id]


def test_a_trial_counts_all_its_measurements_and_names_the_widest_gaps() -> None:
    found = pooled(ids(*IDS), ids(5, 9), ids(5, 6, 9), ids(9), ids(*IDS))
    assert str(found) == "2 equal, 1 tie, 2 different"
    assert found.lossless is False
    assert found.worst is not None and found.worst.gap == pytest.approx(2.0)
    assert found.widest_tie is not None and found.widest_tie.position == 1


def test_ties_are_lossless_and_what_could_not_be_checked_is_no_proof() -> None:
    assert pooled(ids(*IDS), ids(5, 9)).lossless is True
    assert replace(pooled(ids(*IDS)), unchecked=1).lossless is None


def test_the_pass_takes_prompts_of_every_kind_when_it_takes_few() -> None:
    prompts = small_prompts(10).prompts
    assert [one.prompt_id for one in reference_prompts(prompts, 4)] == ["p0", "p2", "p5", "p7"]
    assert reference_prompts(prompts, 24) == prompts
